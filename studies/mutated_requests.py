"""Send mutated requests to a service and check that it answers, or closes the connection, without a fault of its own.

    python studies/mutated_requests.py [REQUESTS]   10,000 by default, a few minutes; writes studies/mutated_requests.md

Valid requests of every operation are changed at random: values in bodies, bytes anywhere, headers, methods and paths;
some are sent several times at once over one connection (`tests/service/mutated_requests.py`). Eight clients send them
to `idleband serve` in a process of its own. A fault is a status of 500 or more, a request after which there is neither
a response nor the end of the connection within 30 seconds, a line of the log at level error or with a traceback, or a
valid request, one after every hundred, that is not answered with 200. At the end the service is stopped and started
again on its journal, and must have the same status.
"""

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.service.mutated_requests import D, K, M, Mutations, send  # noqa: E402
from tests.service.running import V1, AsCommand  # noqa: E402

CLIENTS, TIMEOUT, TOKEN = 8, 30.0, "a-token-of-the-study"
ARGUMENTS = ["--policy", "mp-belief-lucb", "--channels", K, "--users", M, "--dimension", D]
ARGUMENTS += ["--set", "channel_names=" + ",".join(f"ch{k + 1}" for k in range(K))]


def work(client: int, requests: int, service: AsCommand, counts: Counter[Any], faults: list[str]) -> None:
    """Send requests one after the other."""
    mutations = Mutations(client, TOKEN)
    for number in range(requests):
        data = mutations.request()
        began = time.monotonic()
        outcome = send(service.port, data, TIMEOUT)
        counts["slowest"] = max(counts["slowest"], time.monotonic() - began)
        counts["sent"] += 1
        counts.update(outcome.statuses)
        counts["closed without a response"] += not outcome.statuses
        if not outcome.ended or any(status >= 500 for status in outcome.statuses):
            faults.append(f"client {client}, request {number}: {outcome.statuses} for {data[:2000]!r}")
        if number % 100 == 99:
            body = {"request_id": f"valid-{client}-{number}", "contexts": [[0.5] * D] * K}
            reply = service.post(f"{V1}/main/decide", body)
            counts["valid requests in between"] += 1
            if reply.status != 200:
                faults.append(f"client {client}, request {number}: a valid request got {reply}")


def _is_fault(line: str) -> bool:
    """Return whether a line of the log is an error or not JSON, or says that there may have been others."""
    try:
        fields = json.loads(line)
    except ValueError:
        return True
    return fields["level"] == "error" or "error" in fields or fields["event"] == "log lines dropped"


def main(requests: int) -> None:
    counts: Counter[Any] = Counter()
    faults: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        service = AsCommand(Path(folder) / "data", *ARGUMENTS, token=TOKEN)
        share = -(-requests // CLIENTS)
        threads = [threading.Thread(target=work, args=(i, share, service, counts, faults)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        status = service.status()
        faults += [f"exit status {ended}" for ended in [service.end()] if ended]
        lines = service.log.read_text().splitlines()
        faults += [line for line in lines if _is_fault(line)]
        counts["lines of the log"] = len(lines)
        again = AsCommand(Path(folder) / "data", token=TOKEN)
        after = again.status()
        again.end()
        for one in (status, after):
            one["counts"].pop("repeated")  # starts at zero with the service
        if status != after:
            faults.append(f"the status was {status}, after a restart it is {after}")
    rows = {
        "mutated requests, some of them several at once": counts["sent"],
        **{f"responses with status {n}": counts[n] for n in sorted(key for key in counts if isinstance(key, int))},
        "connections closed without a response": counts["closed without a response"],
        "valid requests in between, all answered": counts["valid requests in between"],
        "decisions in the state at the end": int(status["counts"]["decisions"]),
        "lines of the log": counts["lines of the log"],
        "faults": len(faults),
    }
    table = "\n".join(f"| {what} | {count:,} |" for what, count in rows.items())
    minutes = (time.monotonic() - began) / 60
    text = (
        f"# Mutated requests\n\n`python studies/mutated_requests.py {requests}`, {minutes:.0f} minutes,"
        f" {CLIENTS} clients, MP-Belief-LUCB with K = {K}, M = {M}, d = {D}.\n\n| | count |\n|---|---|\n{table}\n\n"
        "A fault is a status of 500 or more, no response and no end of the connection within 30 s, an error or a"
        " traceback in the log, a valid request that is not answered with 200, or another state after a restart.\n"
    )
    if not faults and requests >= 10_000:
        (HERE / "mutated_requests.md").write_text(text)
    print(text, *(fault[-2000:] for fault in faults[:40]), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
