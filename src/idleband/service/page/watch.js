// The watch page: the live state of an allocator.

import { Chart } from "./chart.js";
import { count, events, find, getJson, make, pause, percent, plural, postJson, Refused, sentence, setText, short, showMore } from "./common.js";
import { drawKey, Strip } from "./strip.js";

const API = "/v1";
const PAGE_SIZE = 25; // channels per page of the table
const SILENCE = 40; // seconds; the service sends something every 15 seconds
const MAX_RETRY_DELAY = 8; // seconds between two attempts to connect
const READING_TIME = 2500; // ms between two explanations of the latest decision
const ROW_HEIGHT = 32; // pixels of a row of the strip below the table
const MAX_TERMS = 40; // channels in the table of numbers, unless all are asked for
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let name = ""; // name of the allocator
let view = null; // the data that is shown
let latest = null; // text of the latest event, parsed when it is drawn
let received = 0; // time of the latest event
let first = 0; // position of the first row among the selected channels
let paused = false;
let explained = null; // the decision whose numbers are shown; null: the latest decision is followed
let described = null; // the decision whose explanation is shown while the latest is followed
let following = new AbortController();

const path = () => `${API}/allocators/${encodeURIComponent(name)}`;
const chart = new Chart(find("chart"), { x: "slots reported", y: "Mean reward per slot" });
/** Return the name of a channel, or its index if channels have no names. */
const label = (k) => view?.channel[k]?.name ?? String(k);
const strip = new Strip(find("strip"), find("strip-canvas"), find("strip-note"), (slot) => explain(slot.request_id), label);

// --- the stream ------------------------------------------------------------------------------------------------------

function showState(state, text) {
  const element = find("state");
  element.dataset.state = state;
  setText(element, text);
}

async function start() {
  let wait = 0.5;
  for (;;) {
    try {
      const { allocators, next } = await getJson(`${API}/allocators`); // the first names, if there are many
      const asked = new URLSearchParams(location.search).get("name");
      if (asked !== null && !allocators.includes(asked)) {
        if (!next || !(await exists(asked))) return showUnknown(asked, allocators);
        allocators.push(asked);
      }
      if (allocators.length === 0) throw new Refused(404, "There is no allocator yet. POST /v1/allocators creates one.");
      name = asked ?? allocators[0];
      find("allocator").replaceChildren(...allocators.map((one) => make("option", { value: one }, one)));
      find("allocator").value = name;
      find("choose").hidden = allocators.length < 2;
      break;
    } catch (error) {
      lost(error);
      await pause(wait);
      wait = Math.min(MAX_RETRY_DELAY, 2 * wait);
    }
  }
  follow();
}

/** Return whether there is an allocator of this name. */
async function exists(asked) {
  try {
    return Boolean(await getJson(`${API}/allocators/${encodeURIComponent(asked)}`));
  } catch (error) {
    if (error.status === 404) return false;
    throw error;
  }
}

/** Show that the allocator in the address is unknown, with links to those that exist. */
function showUnknown(asked, allocators) {
  const links = allocators.flatMap((one) => [", ", make("a", { href: `?name=${encodeURIComponent(one)}` }, one)]).slice(1);
  find("error").replaceChildren(`There is no allocator named ${asked}. Existing allocators: `, ...(links.length ? links : ["none"]), ".");
  for (const part of document.querySelectorAll("main > .lead ~ :not(.error), #choose, #pause")) part.hidden = true;
  showState("", "Not connected");
}

/** Show the allocator until another one is chosen; reconnect when the connection is lost. */
async function follow() {
  following.abort();
  following = new AbortController();
  const { signal } = following;
  let wait = 0.5;
  while (!signal.aborted) {
    try {
      for await (const text of events(`${path()}/watch`, { signal, silence: SILENCE })) {
        if (signal.aborted) return;
        wait = 0.5;
        received = performance.now();
        if (!paused) showState("live", "Live");
        setText(find("error"), "");
        schedule(text);
      }
      lost(null); // the service was stopped
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) return start(); // the service was restarted without this allocator
      lost(error);
    }
    // Random, so that many pages do not reconnect at the same moment.
    await pause(wait * (0.75 + 0.5 * Math.random()));
    wait = Math.min(MAX_RETRY_DELAY, 2 * wait);
  }
}

function lost(error) {
  const refused = error instanceof Refused; // the service answers
  showState("lost", refused ? "Retrying" : "Connection lost, retrying");
  setText(find("error"), refused ? error.message : "");
}

/** Draw the latest event with the next frame; a hidden tab draws nothing. */
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
  setText(find("broken-why"), view.policy_failure ? sentence(view.policy_failure) : "");
  showTiles();
  showChannels();
  showStrip();
  showExplanation();
  showReward();
  showTotals();
}

function showTiles() {
  setText(find("policy"), view.policy);
  setText(find("size"), `${plural(view.channels, "channel")}, up to ${plural(view.users, "user")}`);
  setText(find("slot"), count(view.slot));
  showRate();
  const known = view.suboptimal !== null && view.plays > 0; // only a simulated base station reports references
  find("simulated").hidden = find("references").hidden = !known;
  const [, reward, fixed, contextual] = view.curves.at(-1) ?? [];
  setText(find("reward"), short(reward));
  setText(find("reward-share"), fixed > 0 ? `${percent(reward / fixed)} of the best fixed channels, ${percent(reward / contextual)} of the best channels by context` : "since the allocator was opened");
  const [byFixed, byContext] = known ? view.suboptimal.map((n) => percent(n / view.plays)) : ["–", "–"];
  setText(find("suboptimal"), byFixed);
  setText(find("suboptimal-note"), known ? `not among the best fixed channels; ${byContext} not among the best channels by context` : "known only in simulations");
}

function showRate() {
  if (view === null) return;
  const quiet = (performance.now() - received) / 1000;
  setText(find("rate"), quiet > 5 && !paused ? `no change for ${plural(Math.round(quiet), "second")}` : `${view.rate.toFixed(view.rate < 10 ? 1 : 0)} decisions per second`);
}

const rows = []; // of the table: created once, then only their texts change

function rowOf(i) {
  while (rows.length <= i) {
    const cell = (className, ...children) => make("td", { className, role: "cell" }, ...children);
    const row = { channelName: make("span"), index: make("small", { className: "quiet" }), now: cell("now-cell") };
    Object.assign(row, { fill: make("i"), belief: make("span"), observed: cell("observed"), plays: cell("n plays"), mean: cell("n mean") });
    row.steer = make("button", { type: "button", className: "in-row" });
    row.steer.addEventListener("click", () => steer(row));
    const belief = make("div", { className: "belief" }, make("div", { className: "bar" }, row.fill), row.belief);
    row.element = make(
      "tr", { role: "row" },
      make("th", { scope: "row", role: "rowheader" }, row.channelName, " ", row.index),
      row.now, cell("belief-cell", belief), row.observed, row.plays, row.mean, cell("steer-cell", row.steer),
    );
    find("rows").append(row.element);
    rows.push(row);
  }
  return rows[i];
}

function showChannels() {
  const paged = view.channels > PAGE_SIZE + 5; // no second page for a few channels
  const size = paged ? PAGE_SIZE : view.channels;
  const assigned = new Set(view.last?.channels);
  const selected = view.channel.filter(channelFilter(assigned));
  first = Math.max(0, Math.min(first, Math.floor((selected.length - 1) / size) * size));
  const shown = selected.slice(first, first + size);
  find("pager").hidden = !paged;
  const ends = shown.length ? `${label(shown[0].channel)} to ${label(shown.at(-1).channel)}` : "";
  setText(find("range"), shown.length ? `${ends} (${shown.length} of ${count(selected.length)})` : "none");
  find("back").disabled = first === 0;
  find("on").disabled = first + size >= selected.length;
  shown.forEach((channel, i) => showRow(rowOf(i), channel, assigned.has(channel.channel)));
  rows.forEach((row, i) => (row.element.hidden = i >= shown.length));

  if (view.last === null) {
    setText(find("assigned-by"), "No channels have been assigned yet.");
    setText(find("assigned"), "");
    return;
  }
  const by = { policy: "", incumbent: " by the incumbent", fallback: " by the fallback" }[view.last.by];
  setText(find("assigned-by"), `Assigned in slot ${count(view.last.slot)}${by}:`);
  setText(find("assigned"), listed(view.last.channels) || "none");
}

function channelFilter(assigned) {
  const which = find("filter").value;
  if (which === "assigned") return (channel) => assigned.has(channel.channel);
  if (which === "vacated") return (channel) => channel.vacated;
  return () => true;
}

function showRow(row, channel, assigned) {
  const k = channel.channel;
  row.channel = k;
  setText(row.channelName, label(k));
  setText(row.index, channel.name ? String(k) : "");
  row.index.title = channel.name ? `index ${k}` : "";
  setText(row.now, channel.vacated ? "vacated" : assigned ? "assigned" : "");
  row.now.classList.toggle("vacated-now", channel.vacated);
  row.element.classList.toggle("now", assigned);
  row.fill.style.transform = `scaleX(${channel.belief.toFixed(3)})`;
  setText(row.belief, channel.belief.toFixed(2));
  const ago = view.slot - channel.last_observed_slot;
  setText(row.observed, channel.last_observed === null ? "never" : `${channel.last_observed}, ${ago <= 0 ? "now" : `${plural(ago, "slot")} ago`}`);
  setText(row.plays, count(channel.plays));
  setText(row.mean, channel.mean_reward === null ? "–" : channel.mean_reward.toFixed(3));
  if (row.vacated !== channel.vacated || row.labelled !== k) {
    row.vacated = channel.vacated;
    row.labelled = k;
    const action = channel.vacated ? "Restore" : "Vacate";
    row.steer.textContent = action;
    row.steer.setAttribute("aria-label", `${action} channel ${label(k)}`);
  }
}

function showStrip() {
  const shown = rows.filter((row) => !row.element.hidden);
  if (!shown.length) return;
  const beside = find("strip").offsetTop < find("channels").offsetTop + find("channels").offsetHeight / 2;
  // Beside the table, rows of both are aligned.
  strip.show(view.strip, shown.map((row) => row.channel), beside ? shown[0].element.getBoundingClientRect().height : ROW_HEIGHT);
}

/** Return channels as text; three or more neighbours are contracted, as in 0, 3 to 6, 8. */
function listed(channels) {
  const runs = [];
  for (const k of [...channels].sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run && run[1] === k - 1) run[1] = k;
    else runs.push([k, k]);
  }
  return runs.map(([a, b]) => (b - a > 1 ? `${label(a)} to ${label(b)}` : b > a ? `${label(a)}, ${label(b)}` : label(a))).join(", ");
}

function showReward() {
  const known = view.curves.length > 0 && view.curves[0].length > 2;
  // The mean over the first slots is noise, and would take most of the height.
  const settled = view.curves.filter(([t]) => t >= view.curves.at(-1)[0] / 20);
  const line = (text, i) => ({ name: text, points: settled.map((point) => [point[0], point[i]]) });
  const lines = [line(view.policy, 1)];
  if (known) lines.push(line("best fixed channels", 2), line("best channels by context", 3));
  chart.draw(view.curves.length ? lines : []);
  setText(
    find("reward-note"),
    known || !view.curves.length
      ? "Mean reward per slot up to each slot, with the two references in the same slots."
      : "Mean reward per slot up to each slot. References are known only in simulations.",
  );
}

function showTotals() {
  const n = view.counts;
  const found = [
    ["Decisions", count(n.decisions)],
    ["Channels requested", count(n.requested)],
    ["Channels assigned", count(n.assigned)],
    ["Channels reported", `${count(n.reported)} (${percent(n.assigned ? n.reported / n.assigned : NaN)})`],
    ["Collisions with primary users", `${count(n.collisions)} (${percent(n.reported ? n.collisions / n.reported : NaN)})`],
    ["Reward", count(n.reward)],
    ["Late reports", count(n.late)],
    ["Repeated reports since the allocator was opened", count(n.repeated)],
    ["Decisions by the fallback", count(n.fallback)],
  ];
  if (n.missed_deadlines > 0) found.push(["Missed deadlines", count(n.missed_deadlines)]);
  if (view.collision_limit < 1) {
    found.push([`Withheld: primary user more likely than ${percent(view.collision_limit)}`, count(n.withheld)]);
    found.push(["Estimated reward lost by withholding", short(n.withheld_cost)]);
  }
  if (n.shadowed > 0) found.push(["Channels of the incumbent that the policy also selected", `${percent(n.agreed / n.shadowed)} of ${count(n.shadowed)}`]);

  const list = find("totals");
  if (list.children.length !== 2 * found.length) list.replaceChildren(...found.flatMap(() => [make("dt"), make("dd")]));
  found.flat().forEach((text, i) => setText(list.children[i], text));
}

// --- explanations -------------------------------------------------------------------------------------------------------------

let explanationShown = -Infinity; // time in ms

const explanationTitle = (slot) => setText(find("why-title"), slot ? `Explanation of the decision in slot ${count(slot)}` : "Explanation of a decision");

function showExplanation() {
  if (explained !== null) return;
  if (performance.now() - explanationShown < READING_TIME) return;
  explanationShown = performance.now();
  described = view.last;
  explanationTitle(described?.slot);
  setText(find("why"), view.explanation || "No decision yet.");
}

async function explain(requestId) {
  let found;
  try {
    found = await getJson(`${path()}/explain?request_id=${encodeURIComponent(requestId)}`);
  } catch (error) {
    found = { text: error instanceof Refused ? error.message : "The service cannot be reached.", channels: [] };
  }
  explained = found;
  strip.pinned = found.slot ?? null;
  strip.draw();
  find("why").setAttribute("aria-live", "polite"); // only explanations that were asked for
  explanationTitle(found.slot);
  setText(find("why"), found.text);
  find("follow").hidden = false;
  find("explain-last").hidden = true;
  showTerms(MAX_TERMS);
  find("why-card").scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function showTerms(max) {
  const { channels, estimate_meaning, width_meaning, policy } = explained;
  find("terms-box").hidden = find("terms-note").hidden = channels.length === 0;
  if (channels.length === 0) return;
  const meanings = [`Numbers of ${policy}.`, "Index: channels are ranked by this number."];
  meanings.push(estimate_meaning ? `Estimate: ${estimate_meaning}.` : "This policy has no estimate.");
  meanings.push(width_meaning ? `Width: ${width_meaning}.` : "This policy has no width.");
  meanings.push("Belief: probability that the channel was idle, according to the policy or, if it has no belief, the allocator.");
  meanings.push("Primary user: probability of a primary user according to the allocator.");
  setText(find("terms-note"), meanings.join(" "));
  // Assigned channels first, then by index.
  const ranked = [...channels].sort((a, b) => b.assigned - a.assigned || (b.index ?? -Infinity) - (a.index ?? -Infinity) || a.channel - b.channel);
  find("terms").replaceChildren(...ranked.slice(0, max).map(termRow));
  find("all-terms").hidden = ranked.length <= max;
  setText(find("all-terms"), `Show all ${count(ranked.length)} channels`);
}

function termRow(term) {
  const decision = term.assigned ? "assigned" : term.status === "available" ? "" : term.status;
  const cells = { Index: term.index, Estimate: term.estimate, Width: term.width, Belief: term.belief, "Primary user": term.primary_user_probability };
  const index = term.name ? make("small", { className: "quiet", title: `index ${term.channel}` }, String(term.channel)) : "";
  return make(
    "tr", { className: term.assigned ? "now" : "", role: "row" },
    make("th", { scope: "row", role: "rowheader" }, term.name ?? String(term.channel), " ", index),
    make("td", { className: "decision", role: "cell" }, decision),
    ...Object.entries(cells).map(([heading, value]) => make("td", { className: "n", role: "cell", "data-label": heading }, value === null ? "–" : signed(value))),
  );
}

const signed = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(3);

function followLatest() {
  explained = null;
  explanationShown = -Infinity;
  strip.release();
  find("why").setAttribute("aria-live", "off");
  find("terms-box").hidden = find("terms-note").hidden = true;
  find("follow").hidden = true;
  find("explain-last").hidden = false;
  if (view !== null) show();
}

// --- controls --------------------------------------------------------------------------------------------------------

/** Run the action of a button once, and show its outcome in a line. */
async function pressed(button, action) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true"); // a disabled button would lose the focus
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
    const { leave, vacated } = await postJson(`${path()}/${restores ? "restore" : "vacate"}`, { channels: [k] });
    for (const channel of view.channel) channel.vacated = vacated.includes(channel.channel);
    showChannels();
    if (restores) return `Channel ${label(k)} can be assigned again.`;
    return `Channel ${label(k)} is not assigned until it is restored.${leave.includes(k) ? " It was assigned in the last decision and must be vacated now." : ""}`;
  });
}

find("reset").addEventListener("click", (event) => {
  if (!confirm("Reset the policy? It forgets everything that it has learned.")) return;
  pressed(event.target, async () => {
    await postJson(`${path()}/reset`);
    return "The policy was reset.";
  });
});

find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  setText(find("pause"), paused ? "Continue" : "Pause");
  if (paused) showState("paused", "Paused");
  else {
    showState("live", "Live");
    requestAnimationFrame(draw);
  }
});

find("explain-last").addEventListener("click", async () => {
  if (view?.last == null) return;
  // The decision whose explanation is being read, if the service still has it.
  const recent = view.strip.some(({ request_id }) => request_id === described?.request_id);
  await explain((recent ? described : view.last).request_id);
  find("follow").focus();
});
find("follow").addEventListener("click", () => {
  followLatest();
  find("explain-last").focus();
});
find("all-terms").addEventListener("click", () => showTerms(Infinity));

function turnTo(position) {
  first = Math.floor(position / PAGE_SIZE) * PAGE_SIZE;
  if (view === null) return;
  showChannels();
  showStrip();
}
find("back").addEventListener("click", () => turnTo(Math.max(0, first - PAGE_SIZE)));
find("on").addEventListener("click", () => turnTo(first + PAGE_SIZE));
find("go").addEventListener("change", () => {
  const text = find("go").value.trim();
  if (view === null || text === "") return;
  const named = view.channel.find((channel) => channel.name === text);
  const k = named ? named.channel : /^\d+$/.test(text) ? Number(text) : NaN;
  if (k < view.channels) {
    find("filter").value = "all";
    turnTo(k);
  } else {
    find("go").setAttribute("aria-invalid", "true");
    const names = view.channel[0].name ? `, or a name from ${label(0)} to ${label(view.channels - 1)}` : "";
    setText(find("go-error"), `Must be a channel index from 0 to ${view.channels - 1}${names}.`);
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
