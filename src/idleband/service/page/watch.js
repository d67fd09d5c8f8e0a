// The watch page: an allocator as it goes.

import { Chart } from "./chart.js";
import { count, events, find, getJson, make, pause, percent, plural, postJson, Refused, setText, short, showMore, upper } from "./common.js";
import { drawKey, Strip } from "./strip.js";

const PAGE = 25; // channels at once
const SILENCE = 40; // seconds: a living service says something every 15
const LONGEST_WAIT = 8; // seconds between two attempts to connect
const READABLE = 2500; // ms between two texts of the latest decision: faster, nobody can read them
const TERMS = 40; // channels in the table of numbers, unless all are asked for
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let name = ""; // of the allocator
let view = null; // what was shown last
let latest = null; // text of the last event: read only when it is drawn
let heard = 0; // when that came
let first = 0; // place of the first row among the channels that may be shown
let paused = false;
let explained = null; // the decision whose numbers are shown; null: the latest is followed
let told = null; // the decision whose text was shown last while the latest is followed
let following = new AbortController();

const at = () => `/allocators/${encodeURIComponent(name)}`;
const chart = new Chart(find("chart"), { x: "slots reported", y: "Mean reward per slot" });
const strip = new Strip(find("strip"), find("strip-canvas"), find("strip-note"), (slot) => explain(slot.request));

// --- the stream ------------------------------------------------------------------------------------------------------

function state(is, text) {
  const element = find("state");
  element.dataset.is = is;
  setText(element, text);
}

async function start() {
  let wait = 0.5;
  for (;;) {
    try {
      const { allocators } = await getJson("/allocators");
      const asked = new URLSearchParams(location.search).get("name");
      if (asked !== null && !allocators.includes(asked)) return nobody(asked, allocators);
      if (allocators.length === 0) throw new Refused(404, "There is no allocator yet: POST /allocators makes one.");
      name = asked ?? allocators[0];
      find("allocator").replaceChildren(...allocators.map((one) => make("option", { value: one }, one)));
      find("allocator").value = name;
      find("choose").hidden = allocators.length < 2;
      break;
    } catch (error) {
      lost(error);
      await pause(wait);
      wait = Math.min(LONGEST_WAIT, 2 * wait);
    }
  }
  follow();
}

/** Says which allocators there are instead, and stops: another one is another address. */
function nobody(asked, allocators) {
  const links = allocators.flatMap((one) => [", ", make("a", { href: `?name=${encodeURIComponent(one)}` }, one)]).slice(1);
  find("error").replaceChildren(`There is no allocator named ${asked}. Those there are: `, ...(links.length ? links : ["none yet"]), ".");
  for (const part of document.querySelectorAll("main > .lead ~ :not(.error), #choose, #pause")) part.hidden = true;
  state("", "Not connected");
}

/** Shows the allocator until another one is chosen, over as many connections as it takes. */
async function follow() {
  following.abort();
  following = new AbortController();
  const { signal } = following;
  let wait = 0.5;
  while (!signal.aborted) {
    try {
      for await (const text of events(`${at()}/watch`, { signal, silence: SILENCE })) {
        if (signal.aborted) return;
        wait = 0.5;
        heard = performance.now();
        if (!paused) state("live", "Live");
        setText(find("error"), "");
        schedule(text);
      }
      lost(null); // the service is ending
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) return start(); // after a restart without it, say
      lost(error);
    }
    // Not all pages at the same moment, if there are many.
    await pause(wait * (0.75 + 0.5 * Math.random()));
    wait = Math.min(LONGEST_WAIT, 2 * wait);
  }
}

function lost(error) {
  const refused = error instanceof Refused; // it is there, and says no
  state("lost", refused ? "Trying again" : "Connection lost, trying again");
  setText(find("error"), refused ? error.message : "");
}

/** Draws when the browser is about to; only the last of what came until then, and not in a hidden tab. */
function schedule(text) {
  const waiting = latest !== null;
  latest = text;
  if (waiting || paused) return;
  if (calm.matches && view !== null) setTimeout(() => requestAnimationFrame(draw), 2000);
  else requestAnimationFrame(draw);
}

function draw() {
  if (latest === null || paused) return;
  view = JSON.parse(latest);
  latest = null;
  show();
}

// --- showing ---------------------------------------------------------------------------------------------------------

function show() {
  find("broken").hidden = !view.policy_failure;
  setText(find("broken-why"), view.policy_failure ? upper(view.policy_failure) : "");
  showTiles();
  showChannels();
  showStrip();
  showWhy();
  showReward();
  showTotals();
}

function showTiles() {
  setText(find("policy"), view.policy);
  setText(find("size"), `${plural(view.channels, "channel")}, up to ${plural(view.users, "user")}`);
  setText(find("slot"), count(view.slot));
  showRate();
  const known = view.suboptimal !== null && view.picks > 0; // only a simulator says what would have been best
  find("simulated").hidden = find("references").hidden = !known;
  const [, reward, fixed, contextual] = view.curves.at(-1) ?? [];
  setText(find("reward"), short(reward));
  setText(find("reward-share"), `since the service started${fixed > 0 ? `: ${percent(reward / fixed)} of the best fixed channels, ${percent(reward / contextual)} of the best by context` : ""}`);
  const [outside, worse] = known ? view.suboptimal.map((n) => percent(n / view.picks)) : ["–", "–"];
  setText(find("suboptimal"), outside);
  setText(
    find("suboptimal-note"),
    known ? `since the service started: outside the best fixed channels; ${worse} not among the best by context` : "only a simulator knows which these are",
  );
}

function showRate() {
  if (view === null) return;
  const quiet = (performance.now() - heard) / 1000;
  setText(find("rate"), quiet > 5 && !paused ? `no news for ${plural(Math.round(quiet), "second")}` : `${view.rate.toFixed(view.rate < 10 ? 1 : 0)} decisions a second`);
}

const rows = []; // of the table: made once, then only their texts change

function rowOf(i) {
  while (rows.length <= i) {
    const row = { element: make("tr"), number: make("th", { scope: "row", className: "n" }), now: make("td") };
    Object.assign(row, { fill: make("i"), belief: make("span"), seen: make("td", { className: "seen" }) });
    Object.assign(row, { plays: make("td", { className: "n" }), mean: make("td", { className: "n" }) });
    row.steer = make("button", { type: "button", className: "in-row" });
    row.steer.addEventListener("click", () => steer(row));
    const belief = make("div", { className: "belief" }, make("div", { className: "bar" }, row.fill), row.belief);
    row.element.append(row.number, row.now, make("td", {}, belief), row.seen, row.plays, row.mean, make("td", { className: "stays" }, row.steer));
    find("rows").append(row.element);
    rows.push(row);
  }
  return rows[i];
}

function showChannels() {
  const paged = view.channels > PAGE + 5; // no second page for a few
  const many = paged ? PAGE : view.channels;
  const handed = new Set(view.last?.channels);
  const chosen = view.channel.filter(wanted(handed));
  first = Math.max(0, Math.min(first, Math.floor((chosen.length - 1) / many) * many));
  const shown = chosen.slice(first, first + many);
  find("pager").hidden = !paged;
  setText(find("range"), chosen.length ? `${first + 1} to ${first + shown.length} of ${count(chosen.length)}` : "none");
  find("back").disabled = first === 0;
  find("on").disabled = first + many >= chosen.length;
  find("go").max = view.channels;
  shown.forEach((channel, i) => showRow(rowOf(i), channel, handed.has(channel.channel)));
  rows.forEach((row, i) => (row.element.hidden = i >= shown.length));

  if (view.last === null) {
    setText(find("handed-by"), "Nothing is handed out yet.");
    setText(find("handed"), "");
    return;
  }
  const by = { policy: "", incumbent: " by the incumbent", fallback: " by the fallback" }[view.last.by];
  setText(find("handed-by"), `Handed out in slot ${count(view.last.slot)}${by}:`);
  setText(find("handed"), inRuns(view.last.channels) || "none");
}

function wanted(handed) {
  const which = find("filter").value;
  if (which === "handed") return (channel) => handed.has(channel.channel);
  if (which === "vacated") return (channel) => channel.vacated;
  return () => true;
}

function showRow(row, channel, handed) {
  row.channel = channel.channel;
  setText(row.number, String(channel.channel + 1));
  const now = channel.vacated ? "vacated" : handed ? "handed out" : "";
  setText(row.now, now);
  row.now.classList.toggle("vacated-now", channel.vacated);
  row.element.classList.toggle("now", handed);
  row.fill.style.transform = `scaleX(${channel.belief.toFixed(3)})`;
  setText(row.belief, channel.belief.toFixed(2));
  const ago = view.slot - channel.last_observed_slot;
  setText(row.seen, channel.last_observed === null ? "never" : `${channel.last_observed}, ${ago <= 0 ? "now" : `${plural(ago, "slot")} ago`}`);
  setText(row.plays, count(channel.plays));
  setText(row.mean, channel.mean_reward === null ? "–" : channel.mean_reward.toFixed(3));
  if (row.vacated !== channel.vacated || row.labelled !== channel.channel) {
    row.vacated = channel.vacated;
    row.labelled = channel.channel;
    const does = channel.vacated ? "Restore" : "Vacate";
    row.steer.textContent = does;
    row.steer.setAttribute("aria-label", `${does} channel ${channel.channel + 1}`);
  }
}

function showStrip() {
  const shown = rows.filter((row) => !row.element.hidden);
  if (shown.length) strip.show(view.strip, shown.map((row) => row.channel), shown[0].element.getBoundingClientRect().height);
}

/** Channels as people number them, neighbours together: 1, 4 to 7, 9. */
function inRuns(channels) {
  const sorted = [...channels].sort((a, b) => a - b);
  const runs = [];
  for (const k of sorted) {
    const run = runs.at(-1);
    if (run && run[1] === k - 1) run[1] = k;
    else runs.push([k, k]);
  }
  return runs.map(([a, b]) => (b - a > 1 ? `${a + 1} to ${b + 1}` : b > a ? `${a + 1}, ${b + 1}` : a + 1)).join(", ");
}

function showReward() {
  const known = view.curves.length > 0 && view.curves[0].length > 2;
  // The first slots are all noise, and would take most of the height.
  const settled = view.curves.filter(([t]) => t >= view.curves.at(-1)[0] / 20);
  const line = (label, i) => ({ name: label, points: settled.map((point) => [point[0], point[i]]) });
  const lines = [line("earned", 1)];
  if (known) lines.push(line("best fixed channels", 2), line("best by context", 3));
  chart.draw(view.curves.length ? lines : []);
  setText(
    find("reward-note"),
    known || !view.curves.length
      ? "The mean so far, beside what the best fixed channels and the best channels given the contexts would have earned in the same slots."
      : "The mean so far. What was possible is not known: only a simulator can say it.",
  );
}

function showTotals() {
  const n = view.counts;
  const found = [
    ["Decisions", count(n.decisions)],
    ["Channels requested", count(n.requested)],
    ["Channels assigned", count(n.assigned)],
    ["Reported", `${count(n.reported)} (${percent(n.assigned ? n.reported / n.assigned : NaN)})`],
    ["Collisions with a primary user", `${count(n.collisions)} (${percent(n.reported ? n.collisions / n.reported : NaN)})`],
    ["Reward", count(n.reward)],
    ["Reports that came too late to learn", count(n.late)],
    ["Reports repeated, since the service started", count(n.repeated)],
    ["Decisions by the fallback", count(n.fallback)],
  ];
  if (n.missed_deadlines > 0) found.push(["Deadlines missed", count(n.missed_deadlines)]);
  if (view.collision_limit < 1) {
    found.push([`Withheld: a primary user likelier than ${percent(view.collision_limit)}`, count(n.withheld)]);
    found.push(["What withholding may have cost, in reward", short(n.withheld_cost)]);
  }
  if (n.shadowed > 0) found.push(["In the incumbent's shadow: channels in common", `${percent(n.agreed / n.shadowed)} of ${count(n.shadowed)}`]);

  const list = find("totals");
  if (list.children.length !== 2 * found.length) list.replaceChildren(...found.flatMap(() => [make("dt"), make("dd")]));
  found.flat().forEach((text, i) => setText(list.children[i], text));
}

// --- why -------------------------------------------------------------------------------------------------------------

let whyShown = -Infinity;

const whyTitle = (slot) => setText(find("why-title"), slot ? `Why the decision of slot ${count(slot)}` : "Why a decision was taken");

function showWhy() {
  if (explained !== null) return;
  if (performance.now() - whyShown < READABLE) return;
  whyShown = performance.now();
  told = view.last;
  whyTitle(told?.slot);
  setText(find("why"), view.explanation || "No decision yet.");
}

async function explain(request) {
  let found;
  try {
    found = await getJson(`${at()}/explain?request=${encodeURIComponent(request)}`);
  } catch (error) {
    found = { text: error instanceof Refused ? error.message : "The service cannot be reached.", channels: [] };
  }
  explained = found;
  strip.pinned = found.slot ?? null;
  strip.draw();
  find("why").setAttribute("aria-live", "polite"); // it was asked for; the latest, which changes all the time, was not
  whyTitle(found.slot);
  setText(find("why"), found.text);
  find("follow").hidden = false;
  find("explain-last").hidden = true;
  showTerms(TERMS);
  find("why-card").scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function showTerms(most) {
  const { channels, estimate_meaning, width_meaning, policy } = explained;
  find("terms-box").hidden = find("terms-note").hidden = channels.length === 0;
  if (channels.length === 0) return;
  const meanings = [`Numbers of ${policy}.`, "Index: what channels are ranked by."];
  meanings.push(estimate_meaning ? `Estimate: ${estimate_meaning}.` : "This policy has no estimate.");
  meanings.push(width_meaning ? `Width: ${width_meaning}.` : "This policy has no width.");
  meanings.push("Belief: the chance that no primary user was there, as the policy has it where it has one.");
  meanings.push("Primary user: the chance of one, as the allocator has it.");
  setText(find("terms-note"), meanings.join(" "));
  // Those handed out first, then by rank: what was close to being chosen is near the top.
  const ranked = [...channels].sort((a, b) => b.assigned - a.assigned || (b.index ?? -Infinity) - (a.index ?? -Infinity) || a.channel - b.channel);
  find("terms").replaceChildren(...ranked.slice(0, most).map(termRow));
  find("all-terms").hidden = ranked.length <= most;
  setText(find("all-terms"), `Show all ${count(ranked.length)} channels`);
}

function termRow(term) {
  const decision = term.assigned ? "assigned" : term.status === "available" ? "" : term.status;
  const cells = [term.index, term.estimate, term.width, term.belief, term.primary_user_probability];
  return make(
    "tr", { className: term.assigned ? "now" : "" },
    make("th", { scope: "row", className: "n" }, String(term.channel + 1)),
    make("td", {}, decision),
    ...cells.map((value) => make("td", { className: "n" }, value === null ? "–" : signed(value))),
  );
}

const signed = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(3);

function followLatest() {
  explained = null;
  whyShown = -Infinity;
  strip.release();
  find("why").setAttribute("aria-live", "off");
  find("terms-box").hidden = find("terms-note").hidden = true;
  find("follow").hidden = true;
  find("explain-last").hidden = false;
  if (view !== null) show();
}

// --- steering --------------------------------------------------------------------------------------------------------

/** Runs what a button asks for, once, and says in a line if it was refused. */
async function pressed(button, action) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true"); // not disabled: that would lose the focus
  try {
    setText(find("steered"), (await action()) ?? "");
  } catch (error) {
    setText(find("steered"), error instanceof Refused ? error.message : "The service cannot be reached; nothing was changed.");
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function steer(row) {
  const [k, restores] = [row.channel, row.vacated];
  return pressed(row.steer, async () => {
    const { leave, vacated } = await postJson(`${at()}/${restores ? "restore" : "vacate"}`, { channels: [k] });
    for (const channel of view.channel) channel.vacated = vacated.includes(channel.channel);
    showChannels();
    if (restores) return `Channel ${k + 1} may be handed out again.`;
    return `Channel ${k + 1} is not handed out until it is restored.${leave.includes(k) ? " The last decision had handed it out: it must be left now." : ""}`;
  });
}

find("reset").addEventListener("click", (event) => {
  if (!confirm("Have the policy begin anew? It forgets all that it has learned.")) return;
  pressed(event.target, async () => {
    await postJson(`${at()}/reset`);
    return "The policy has begun anew.";
  });
});

find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  setText(find("pause"), paused ? "Go on" : "Pause");
  if (paused) state("paused", "Paused");
  else {
    state("live", "Live");
    requestAnimationFrame(draw);
  }
});

find("explain-last").addEventListener("click", async () => {
  if (view?.last == null) return;
  // What is being read, unless so much has happened since that it may be forgotten.
  const recent = view.strip.some(({ request }) => request === told?.request);
  await explain((recent ? told : view.last).request);
  find("follow").focus();
});
find("follow").addEventListener("click", () => {
  followLatest();
  find("explain-last").focus();
});
find("all-terms").addEventListener("click", () => showTerms(Infinity));

function turnTo(place) {
  first = Math.floor(place / PAGE) * PAGE;
  if (view === null) return;
  showChannels();
  showStrip();
}
find("back").addEventListener("click", () => turnTo(Math.max(0, first - PAGE)));
find("on").addEventListener("click", () => turnTo(first + PAGE));
find("go").addEventListener("change", () => {
  if (view === null) return;
  const number = Math.round(find("go").valueAsNumber);
  if (number >= 1 && number <= view.channels) {
    find("filter").value = "all";
    turnTo(number - 1);
  } else if (find("go").value !== "") {
    find("go").setAttribute("aria-invalid", "true");
    setText(find("go-error"), `There are channels 1 to ${count(view.channels)}.`);
  }
});
find("go").addEventListener("input", () => {
  find("go").removeAttribute("aria-invalid");
  setText(find("go-error"), "");
});
find("filter").addEventListener("change", () => turnTo(0));

find("allocator").addEventListener("change", () => {
  name = find("allocator").value;
  history.replaceState(null, "", `?name=${encodeURIComponent(name)}`);
  [view, latest, first] = [null, null, 0];
  find("filter").value = "all";
  followLatest();
  follow();
});

showMore(find("channels"));
showMore(find("terms-scroll"));
drawKey(find("key"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  drawKey(find("key"));
  strip.draw();
});
setInterval(showRate, 1000);
start();
