// The playground: settings in a form and in the link, a run as a stream of checkpoints, curves that grow with it.

import { Chart } from "./chart.js";
import { count, events, find, getJson, make, plural, Refused, sentence, setText, short, showMore } from "./common.js";
import { expand, fillScenario, isEdited, presetOf, probabilities, resizeLists, traceOf, validateScenario, valuesIn } from "./scenario_form.js";
import { UsersView } from "./users.js";

const DEFAULTS = { // a form that can be run as it is
  scenario: "S1", perturbation: "linear", users: "5", slots: "20000", replications: "3", seed: "0",
  dwell: "geometric", shocks: "off", change: "off", errors: "0", noise: "0",
  coordination: "station", collision: "lost", observes: "sensing", bits: "0", stay: "", absence: "",
  show: "reward", axis: "linear", reference: "best", policies: ["rca-m", "mp-lucb", "mp-belief-lucb"],
};
// Without a base station the slots are easier to follow without perturbation. The last policy is that of a base station.
const UNCOORDINATED = { perturbation: "none", policies: ["mctopm", "selfish-klucb", "mp-belief"] };
const FIELDS = ["scenario", "coordination", "channels", "users", "collision", "observes", "bits", "stay", "absence", "p01", "p10", "perturbation", "slots", "replications", "seed", "dwell", "shocks", "change", "errors", "noise"];
const SCENARIO_FIELDS = ["channels", "p01", "p10"]; // in the link only where they differ from the preset
const PROCESS_FIELDS = ["dwell", "shocks", "change"]; // not for traces
const USERS_FIELDS = ["collision", "observes", "bits", "stay", "absence"]; // only without a base station
const OPTIONAL_FIELDS = [...PROCESS_FIELDS, ...USERS_FIELDS, "coordination", "errors", "noise"]; // in the link only where they differ from the default
const DWELL_NOTES = {
  geometric: "How long a channel has been idle or busy does not matter for its next state.",
  bursty: "Many short and a few very long periods with the same means: the longer a period has lasted, the less likely it is to end.",
  regular: "Periods of similar lengths with the same means: the longer a period has lasted, the more likely it is to end.",
};
const COORDINATION_NOTES = {
  station: "One policy selects channels for all users, who never collide with each other.",
  none: "Users can collide with each other. After Run, the page shows slot by slot who plays which channel.",
};
const COLLISION_TEXTS = { lost: "lost: no user earns the reward", one: "one: a random one of them earns it", split: "split: each earns an equal part" };
const OBSERVES_TEXTS = { sensing: "sensing: state, reward, collision", collisions: "collisions: reward and collision", rewards: "rewards: the reward alone" };
const VIEWS = ["show", "axis", "reference"];
const LOWER = "Lower is better.";
const MEASURES = {
  reward: ["Reward per slot", "Higher is better. The mean reward per slot up to each slot, summed over the M assigned channels."],
  static: ["Regret against the best fixed channels", `${LOWER} The total reward of the M channels with the largest mean rewards, minus the total reward of the policy.`],
  contextual: ["Regret against the best channels by context", `${LOWER} The total reward of the M channels with the largest expected rewards given the contexts, minus the total reward of the policy.`],
  collisions: ["Collisions between users", `${LOWER} The number of plays up to each slot that collided with those of other users. Where the curve is flat, the users have found different channels.`],
};
const PAPER_NOTE = "This is the scale of the paper: regret divided by M ln t. It approaches a constant if regret grows logarithmically, and it diverges, up or down, if regret grows linearly.";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

let options = null; // scenarios, policies and limits, as the service sends them
let running = null; // AbortController of the run in progress
let run = null; // the run that is shown: { settings, scenario, last: slot, points }
const chart = new Chart(find("chart"), { x: "slots", y: "" });
const usersView = new UsersView();
const differenceChart = new Chart(find("difference-chart"), { x: "slots", y: "" });

const uncoordinated = () => find("coordination").value === "none";

/** Return the policies that can run with the selected coordination. */
const offered = () => (uncoordinated() ? [...options.decentralised, ...options.policies] : options.policies);

// --- the form --------------------------------------------------------------------------------------------------------

let policiesMade = 0; // for unique ids

/** Add a policy to the form; `given` holds the parameters that differ from their defaults. */
function addPolicy(name, given = {}) {
  const id = `policy-${++policiesMade}`;
  const select = make("select", { id, "aria-label": "Policy" });
  const named = (list) => list.map((one) => make("option", { value: one.name }, one.name));
  if (uncoordinated()) {
    select.append(make("optgroup", { label: "Each user by itself" }, ...named(options.decentralised)));
    select.append(make("optgroup", { label: "With a base station, for comparison" }, ...named(options.policies)));
  } else select.append(...named(options.policies));
  select.value = name;
  const remove = make("button", { type: "button", "aria-label": "Remove this policy" }, "Remove");
  const description = make("p");
  const parameters = make("details", {}, make("summary"), make("div"));
  const box = make("div", { className: "policy" }, make("div", { className: "pick" }, select, remove), description, parameters);
  const fill = (values) => {
    const policy = offered().find((one) => one.name === select.value);
    const station = uncoordinated() && options.policies.includes(policy);
    setText(description, station ? `with a base station: ${policy.description}` : policy.description);
    parameters.lastChild.replaceChildren(...policy.parameters.map((one) => parameterField(one, `${id}-${one.name}`, values[one.name])));
    parameters.hidden = policy.parameters.length === 0;
    countChanged();
  };
  const countChanged = () => {
    const changed = parameters.querySelectorAll(".changed").length;
    setText(parameters.firstChild, `Parameters${changed ? ` (${changed} changed)` : ""}`);
  };
  select.addEventListener("change", () => fill({}));
  box.addEventListener("input", countChanged);
  remove.addEventListener("click", () => {
    const next = box.nextElementSibling ?? box.previousElementSibling;
    box.remove();
    (next?.querySelector("select") ?? find("add")).focus();
    formChanged();
  });
  find("policies").append(box);
  fill(given);
  return box;
}

function parameterField(parameter, id, value) {
  const { name, kind, words, meaning, allowed } = parameter;
  const choices = kind === "bool" ? ["true", "false"] : words;
  const input = choices.length
    ? make("select", { id }, ...choices.map((word) => make("option", { value: word }, word)))
    : make("input", { id, type: "text", inputMode: "decimal", autocomplete: "off" });
  const standard = String(parameter.default);
  input.value = value ?? standard;
  input.dataset.name = name;
  input.dataset.kind = kind;
  input.dataset.standard = standard;
  const note = [meaning, choices.length ? "" : allowed].filter(Boolean).join("; ");
  const box = make("div", { className: "parameter" }, make("label", { htmlFor: id }, name), input);
  box.append(make("small", {}, `${note}${note ? "; " : ""}default ${standard}`));
  const mark = () => box.classList.toggle("changed", isChanged(input));
  input.addEventListener("input", mark);
  mark();
  return box;
}

/** Return whether a parameter differs from its default. Numbers are compared as numbers: 1 and 1.0 are equal. */
function isChanged(input) {
  const { kind, standard } = input.dataset;
  const text = input.value.trim();
  if (kind === "word" || kind === "bool") return text !== standard;
  return text === "" ? false : Number(text) !== Number(standard);
}

const policyBoxes = () => [...find("policies").children];
const changedParameters = (box) => [...box.querySelectorAll(".parameter input, .parameter select")].filter(isChanged);

/** Return a policy as NAME or NAME:key=value,key=value, as on the command line. */
function policyText(box) {
  const parameters = changedParameters(box).map((input) => `${input.dataset.name}=${input.value.trim()}`).join(",");
  return box.querySelector("select").value + (parameters && `:${parameters}`);
}

/** Return the settings as the service takes them. */
function settings() {
  const number = (id) => Number(find(id).value);
  const scenario = { scenario: find("scenario").value };
  if (isEdited(options)) {
    const one = (id) => (probabilities(id).length === 1 ? probabilities(id)[0] : probabilities(id));
    Object.assign(scenario, { channels: number("channels"), p01: one("p01"), p10: one("p10") });
  }
  if (!traceOf(options)) Object.assign(scenario, { dwell: find("dwell").value, shocks: find("shocks").value === "on", regime_change: find("change").value === "on" });
  if (uncoordinated()) {
    Object.assign(scenario, { coordination: "none", collision: find("collision").value, observes: find("observes").value, control_bits: number("bits") });
    if (find("stay").value) Object.assign(scenario, { mean_stay: number("stay"), mean_absence: number("absence") });
  }
  return {
    ...scenario,
    sensing_errors: number("errors"),
    perturbation: find("perturbation").value,
    noise: find("perturbation").value === "none" ? 0 : number("noise"),
    users: number("users"),
    horizon: number("slots"),
    replications: number("replications"),
    seed: number("seed"),
    policies: policyBoxes().map((box) => ({
      name: box.querySelector("select").value,
      parameters: Object.fromEntries(changedParameters(box).map((input) => [input.dataset.name, valueOf(input)])),
    })),
  };
}

function valueOf(input) {
  const text = input.value.trim();
  if (input.dataset.kind === "bool") return text === "true";
  // Text that is not a number is sent as it is; the service answers with the allowed values.
  return input.dataset.kind === "word" || !Number.isFinite(Number(text)) ? text : Number(text);
}

/** Set or remove the validation message of the means of stays and absences, which are given together. */
function validateUsers() {
  const both = (find("stay").value === "") === (find("absence").value === "");
  for (const id of ["stay", "absence"]) find(id).setCustomValidity(both || !uncoordinated() || find(id).value ? "" : "must be given, because the other mean is");
}

/** Mark all invalid fields. */
function markInvalid() {
  validateScenario(options);
  validateUsers();
  for (const id of FIELDS) find(id).setAttribute("aria-invalid", String(isUsed(id) && !find(id).checkValidity()));
}

/** Remove the mark from fields that are valid again. Fields being typed into are not marked before Run is pressed. */
function unmarkValid() {
  validateScenario(options);
  validateUsers();
  for (const id of FIELDS) if (!isUsed(id) || find(id).checkValidity()) find(id).setAttribute("aria-invalid", "false");
}

const firstInvalid = () => FIELDS.map(find).find((input) => input.getAttribute("aria-invalid") === "true");

/** Return one line about the first marked field, or an empty text. */
function mistake() {
  const input = firstInvalid();
  if (!input) return "";
  const range = input.step === "any" ? `number from ${input.min} to ${input.max}` : `whole number from ${count(input.min)} to ${count(input.max)}`;
  return `${input.dataset.label}: ${input.validity.customError ? input.validationMessage : `must be a ${range}`}.`;
}

// --- the link --------------------------------------------------------------------------------------------------------

function toHash() {
  const edited = isEdited(options);
  const inLink = (id) => (SCENARIO_FIELDS.includes(id) ? edited : !OPTIONAL_FIELDS.includes(id) || (find(id).value !== DEFAULTS[id] && isUsed(id)));
  const fields = FIELDS.filter(inLink);
  const link = new URLSearchParams(fields.map((id) => [id, id === "p01" || id === "p10" ? valuesIn(id).join(",") : find(id).value]));
  for (const box of policyBoxes()) link.append("policy", policyText(box));
  for (const id of VIEWS) link.append(id, find(id).value || DEFAULTS[id]);
  // These characters need no escape in a fragment, and the link stays readable.
  return `#${link.toString().replaceAll("%3A", ":").replaceAll("%3D", "=").replaceAll("%2C", ",")}`;
}

/** Return whether a field applies to the selected scenario and coordination. */
const isUsed = (id) => !(traceOf(options) && [...SCENARIO_FIELDS, ...PROCESS_FIELDS].includes(id)) && (uncoordinated() || !USERS_FIELDS.includes(id));

/** Return the defaults for the selected scenario and coordination: a trace has its own number of slots and no perturbation. */
function defaults() {
  const trace = traceOf(options);
  const standard = uncoordinated() ? { ...DEFAULTS, ...UNCOORDINATED } : DEFAULTS;
  if (!trace) return standard;
  const { work, work_channels: channels } = options.limits;
  const runs = (policyBoxes().length || DEFAULTS.policies.length) * (Number(find("replications").value) || Number(DEFAULTS.replications));
  const most = Math.floor((work * channels) / Math.max(channels, trace.channels) / runs);
  const users = Math.min(Number(DEFAULTS.users), trace.channels);
  return { ...standard, perturbation: "none", slots: String(Math.min(trace.horizon, most)), users: String(users) };
}

/** Fill the form from the link, or with defaults, and report the parts of the link that are unknown. */
function fromHash() {
  const link = new URLSearchParams(location.hash.slice(1));
  const unknown = [...link].filter(([key]) => ![...FIELDS, ...VIEWS, "policy"].includes(key)).map(([key, value]) => `${key} = ${value}`);
  const fill = (id, fallback) => {
    const [input, value] = [find(id), link.get(id) ?? fallback];
    input.value = value;
    if (input.value !== value) {
      unknown.push(`${id} = ${value}`);
      input.value = fallback;
    }
  };
  fill("scenario", DEFAULTS.scenario);
  fill("coordination", DEFAULTS.coordination);
  const why = (id) => (USERS_FIELDS.includes(id) ? "a base station" : "a trace");
  unknown.push(...FIELDS.filter((id) => link.has(id) && !isUsed(id)).map((id) => `${id} = ${link.get(id)} (not used with ${why(id)})`));
  for (const id of FIELDS) if (!isUsed(id)) link.delete(id);
  const preset = presetOf(options);
  if (preset) {
    fill("channels", String(preset.p01.length));
    for (const id of ["p01", "p10"]) find(id).value = (link.get(id) ?? expand(preset[id], Number(find("channels").value)).join(",")).split(",").join(", ");
  } else {
    fillScenario(options);
  }
  hadTrace = !preset;
  find("policies").replaceChildren();
  fill("replications", DEFAULTS.replications);
  const standard = defaults();
  for (const id of FIELDS) if (id in DEFAULTS && !["scenario", "coordination", "replications"].includes(id)) fill(id, standard[id]);
  for (const id of ["show", "axis"]) fill(id, DEFAULTS[id]);
  find("reference").replaceChildren(...[...new Set(["best", link.get("reference") ?? "best"])].map(referenceOption));
  find("reference").value = link.get("reference") ?? DEFAULTS.reference;
  const listed = link.getAll("policy");
  for (const text of listed.slice(0, options.limits.policies)) {
    const [, name, list = ""] = text.match(/^([^:]*):?(.*)$/s);
    const policy = offered().find((one) => one.name === name);
    if (!policy) {
      const alone = options.decentralised.some((one) => one.name === name);
      unknown.push(`policy = ${name}${alone ? " (only without a base station)" : ""}`);
      continue;
    }
    const given = Object.fromEntries(list.split(",").filter(Boolean).map((one) => one.split(/=(.*)/s).slice(0, 2)));
    for (const key of Object.keys(given)) {
      if (!policy.parameters.some((one) => one.name === key)) unknown.push(`${name}: ${key}`);
    }
    addPolicy(name, given);
  }
  unknown.push(...listed.slice(options.limits.policies).map((text) => `policy = ${text} (more than ${options.limits.policies})`));
  if (policyBoxes().length === 0) standard.policies.forEach((name) => addPolicy(name));
  adapt();
  markInvalid();
  // At the top of the page; the other error line is beside Run, far below on a phone.
  setText(find("link-error"), [unknown.length ? `Unknown in the link: ${unknown.join("; ")}.` : "", mistake()].filter(Boolean).join(" "));
  showError("");
}

function formChanged() {
  adapt();
  unmarkValid();
  setText(find("link-error"), "");
  showError(mistake());
  history.replaceState(null, "", toHash());
  find("link-box").hidden = true;
  setText(find("copied"), "");
}

/** Update the parts of the form that depend on others. */
function adapt() {
  const [preset, trace, edited] = [presetOf(options), traceOf(options), isEdited(options)];
  if (trace) setText(find("scenario-note"), traceNote(trace));
  else setText(find("scenario-note"), edited ? `Based on ${preset.name}, with other channels.` : sentence(preset.note));
  find("restore").hidden = !edited;
  if (preset) setText(find("restore"), `Restore the channels of ${preset.name}`);
  for (const field of document.querySelectorAll("[data-preset-only]")) field.hidden = Boolean(trace);
  for (const field of document.querySelectorAll("[data-users-only]")) field.hidden = !uncoordinated();
  setText(find("coordination-note"), COORDINATION_NOTES[find("coordination").value]);
  const collisions = find("show").querySelector("[value=collisions]");
  collisions.disabled = !uncoordinated();
  if (find("show").value === "collisions" && !uncoordinated()) find("show").value = DEFAULTS.show;
  find("channels").disabled = Boolean(trace); // a trace defines them
  setText(find("dwell-note"), DWELL_NOTES[find("dwell").value]);
  const most = trace ? trace.channels : options.limits.channels;
  find("users").max = Math.min(most, Number(find("channels").value) || most);
  find("add").disabled = policyBoxes().length >= options.limits.policies;
  const alone = policyBoxes().length === 1;
  for (const box of policyBoxes()) box.querySelector("button").disabled = alone;
}

function traceNote({ channels, slots, slot_seconds: seconds }) {
  return `Replay of a recorded trace: ${plural(channels, "channel")}, ${plural(slots, "slot")} of ${Number(seconds.toPrecision(3))} s. Each replication starts at another slot.`;
}

let hadTrace = false; // whether the scenario selected before was a trace

/** Fill in the settings that depend on whether a trace is selected. */
function scenarioChosen() {
  fillScenario(options);
  const standard = defaults();
  const changed = hadTrace || Boolean(traceOf(options));
  hadTrace = Boolean(traceOf(options));
  if (changed) for (const id of ["perturbation", "slots", "users"]) find(id).value = standard[id];
}

/** Offer the policies that fit the coordination, and begin with the default ones. */
function coordinationChosen() {
  find("policies").replaceChildren();
  const standard = defaults();
  for (const name of standard.policies) addPolicy(name);
  find("perturbation").value = standard.perturbation;
}

async function copyLink() {
  history.replaceState(null, "", toHash());
  try {
    await navigator.clipboard.writeText(location.href);
    setText(find("copied"), "The link was copied. It opens this form with these settings.");
  } catch {
    // Browsers allow access to the clipboard only on secure pages.
    find("link-box").hidden = false;
    find("link").value = location.href;
    find("link").select();
    setText(find("copied"), "Copy the link from the field above.");
  }
}

const showError = (line) => setText(find("error"), line);

// --- the run ---------------------------------------------------------------------------------------------------------

async function start() {
  if (running) return;
  markInvalid();
  setText(find("link-error"), "");
  showError(mistake());
  firstInvalid()?.focus();
  if (firstInvalid()) return;
  history.replaceState(null, "", toHash());
  const sent = settings();
  const began = performance.now();
  const next = { settings: sent, scenario: scenarioText(sent), last: 0, points: [] }; // shown from its first point on
  let prepared = 0;
  let compiling;
  running = new AbortController();
  showRunning(true);
  let outcome = "";
  try {
    setText(find("status"), "Starting");
    for await (const text of events(`/v1/playground/run?settings=${encodeURIComponent(JSON.stringify(sent))}`, { signal: running.signal })) {
      const message = JSON.parse(text);
      clearTimeout(compiling);
      if (message.kind === "preparing") {
        const which = `${message.policy}, policy ${++prepared} of ${sent.policies.length}`;
        setText(find("status"), `Preparing ${which}`);
        // A preparation that takes this long is a compilation.
        compiling = setTimeout(() => setText(find("status"), `Compiling ${which}, because it is used for the first time. This takes up to two minutes.`), 2000);
      }
      if (message.kind === "error") throw new Refused(400, message.detail);
      if (message.kind === "end") outcome = `Done: ${count(sent.horizon)} slots in ${((performance.now() - began) / 1000).toFixed(1)} seconds.`;
      if (message.done !== undefined) showProgress(message.done);
      if (message.kind === "users") next.users = message;
      if (message.kind === "slots") addSlots(next, message);
      if (message.kind === "bound" && run === next) usersView.setBound(message.reward);
      if (message.kind === "point") addPoint(next, message);
    }
    if (!outcome) {
      outcome = "The connection was lost, and the run was ended.";
      showError(outcome);
    }
  } catch (error) {
    const how = running.signal.aborted ? "Stopped" : "Ended";
    if (how === "Ended") showError(error instanceof Refused ? sentence(error.message) : "The service cannot be reached.");
    outcome = `${how} after ${plural(next.last, "slot")}.${run && run !== next ? " The charts show the previous run." : ""}`;
  }
  clearTimeout(compiling);
  if (run === next && run.users) showRange(usersView.end());
  running = null;
  showRunning(false);
  find("progress").value = next.last / sent.horizon;
  draw();
  setText(find("status"), outcome);
}

function showRunning(on) {
  find("run").disabled = on;
  find("stop").disabled = !on;
  find("progress").hidden = false;
  if (on) {
    find("progress").removeAttribute("value"); // indeterminate
    find("stop").focus({ preventScroll: true });
    const card = find("curves-card");
    // On a narrow page the curves are below the form.
    if (card.getBoundingClientRect().top > innerHeight / 2) card.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
  } else if (document.activeElement === document.body || document.activeElement === find("stop")) {
    find("run").focus({ preventScroll: true });
  }
}

function showProgress(done) {
  find("progress").value = done;
  // In steps of 10 %, because screen readers read every change.
  setText(find("status"), `Running: ${10 * Math.floor(10 * done)} %`);
}

/** Show the run from now on: its slots, if there is no base station, and its curves. */
function showRun(next) {
  if (run === next) return;
  run = next;
  usersView.begin(run.users, run.settings, !calm.matches);
  const alone = Boolean(run.users);
  find("users-title").hidden = !alone;
  find(alone ? "curves-head" : "run-head").prepend(find("curves-title"));
  if (!alone) return;
  showRange(run.users.slots);
}

/** Say which slots of a run without a base station are shown one by one. */
function showRange(slots) {
  const part = slots < run.settings.horizon ? `The first ${plural(slots, "slot")} of` : "All slots of";
  const which = run.settings.replications > 1 ? "the first replication; the curves and the tables below are over all replications" : "the run";
  setText(find("users-range"), `${part} ${which}.`);
}

function addSlots(next, message) {
  showRun(next);
  usersView.add(message);
}

function addPoint(next, { t, curves, differences, intervals, users }) {
  showRun(next);
  run.last = t;
  run.points.push({ t, curves, differences, intervals, users });
  if (run.waiting) return;
  run.waiting = true;
  requestAnimationFrame(() => {
    run.waiting = false;
    draw();
  });
}

// --- charts and results ----------------------------------------------------------------------------------------------

const policyNames = () => Object.keys(run.points.at(-1).curves);

function draw() {
  let [scale, measure] = find("show").value.startsWith("paper-") ? ["paper", find("show").value.slice(6)] : ["", find("show").value];
  // The run that is shown may have had a base station, although the form has none now.
  if (measure === "collisions" && run && !run.users) measure = "reward";
  const [name, note] = MEASURES[measure];
  const title = scale ? `R(t) / (M ln t), ${measure === "static" ? "best fixed channels" : "best channels by context"}` : name;
  const replications = run?.settings.replications;
  setText(find("curves-title"), title);
  setText(find("reading"), (scale ? `${note} ${PAPER_NOTE}` : run?.users ? note.replace("the M assigned channels", "all users") : note) + (replications > 1 ? ` ${bandsNote(run.settings)}` : ""));
  const nothing = !run?.points.length;
  find("chart").hidden = nothing;
  find("difference-box").hidden = nothing || measure !== "reward" || policyNames().length < 2;
  if (nothing) return;
  const log = find("axis").value === "log";
  const until = run.settings.horizon;
  // The mean over the first slots is noise, and so is a quotient by a small ln t.
  const from = scale || log ? until / 1000 : measure === "reward" ? until / 50 : 0;
  const series = policyNames()
    .map((policy, style) => ({ name: policy, style, points: run.points.map((point) => valueAt(point, policy, measure, scale)).filter(Boolean) }))
    .filter(({ points }) => points.length || measure !== "collisions");
  chart.draw(series, { log, until, from, y: title });
  drawDifferences({ log, until, from: until / (log ? 1000 : 50) });
  showResults();
}

/** Describe the bands: over replications or, where a trace is replayed, over the blocks of the recording. */
function bandsNote({ replications }) {
  const { intervals } = run.points.at(-1) ?? {};
  if (intervals !== undefined) return `Bands are 95\u00a0% intervals, ${intervals}; other recordings may differ by more.`;
  return `Bands are 95\u00a0% intervals over ${replications} replications; they may exceed the chart.`;
}

/** Return [slot, value, half width] of a policy at a checkpoint; null where it is not defined. */
function valueAt({ t, curves, users }, policy, measure, scale) {
  if (measure === "collisions") return users[policy] ? [t, ...users[policy].collisions] : null;
  if (!scale) return [t, ...curves[policy][measure]];
  const divisor = run.settings.users * Math.log(t);
  return t < 2 ? null : [t, ...curves[policy][measure].map((value) => value / divisor)];
}

const referenceOption = (value) => make("option", { value }, value === "best" ? "the best policy" : value);

/** Return the policy that differences are taken from: the chosen one or, by default, the one with the largest reward. */
function referencePolicy() {
  const names = policyNames();
  const chosen = find("reference").value;
  const { curves } = run.points.at(-1);
  return names.includes(chosen) ? chosen : names.reduce((best, name) => (curves[name].reward[0] > curves[best].reward[0] ? name : best));
}

/** Return the paired difference of reward per slot, [mean, half width]. */
function difference({ differences }, policy, reference) {
  if (policy === reference) return [0, 0];
  const found = differences.find((one) => one.of === policy && one.from === reference);
  if (found) return found.reward;
  const [mean, half] = differences.find((one) => one.of === reference && one.from === policy).reward;
  return [-mean, half];
}

function drawDifferences(axes) {
  const names = policyNames();
  const select = find("reference");
  const values = ["best", ...names];
  if ([...select.options].map((option) => option.value).join("\n") !== values.join("\n")) {
    const chosen = select.value;
    select.replaceChildren(...values.map(referenceOption));
    select.value = values.includes(chosen) ? chosen : "best";
  }
  if (find("difference-box").hidden) return;
  const reference = referencePolicy();
  const title = `Reward per slot minus that of ${reference}`;
  setText(find("difference-title"), title);
  const { replications, dwell } = run.settings;
  const significance = dwell === undefined ? ` ${bandsNote(run.settings)}` : " Where the band does not contain 0, the difference at that slot is significant at the 5\u00a0% level.";
  const interval = replications > 1 ? significance : " With one replication there is no interval.";
  setText(find("difference-note"), `Paired: both policies ran on the same sample paths. Below 0, a policy earns less than ${reference}.${interval}`);
  const series = names.map((name, style) => ({ name, style, points: run.points.map((point) => [point.t, ...difference(point, name, reference)]) }));
  differenceChart.draw(series.filter(({ name }) => name !== reference), { ...axes, y: title });
}

/** Describe the settings of a run; the form may have changed since. */
function scenarioText({ scenario, channels, dwell, shocks, regime_change: change, sensing_errors: errors, perturbation, noise, users, horizon, replications, seed, ...alone }) {
  const preset = channels === undefined ? `Scenario ${scenario}` : `Scenario ${scenario} with other channels (K = ${channels})`;
  const world = [
    dwell === undefined ? `Replay of ${scenario}` : preset,
    dwell !== undefined && dwell !== "geometric" && `${dwell} dwell times`,
    shocks && "common shocks",
    change && `regime change in slot ${count(Math.floor(horizon / 2) + 1)}`,
    errors > 0 && `sensing errors ${errors}`,
  ];
  const disturbance = `${perturbation === "none" ? "no" : perturbation} perturbation${noise > 0 ? ` with noise ${noise}` : ""}`;
  const without = alone.coordination === "none" && [
    " without a base station",
    `collision ${alone.collision}`,
    `observes ${alone.observes}`,
    alone.control_bits > 0 && plural(alone.control_bits, "control bit"),
    alone.mean_stay && `mean stay ${alone.mean_stay}, mean absence ${alone.mean_absence}`,
  ].filter(Boolean).join(", ");
  return `${world.filter(Boolean).join(", ")}, ${disturbance}, ${plural(users, "user")}${without || ""}, ${plural(horizon, "slot")}, ${plural(replications, "replication")}, seed ${seed}`;
}

function showResults() {
  setText(find("run-of"), run.scenario);
  setText(find("results-of"), `Results: ${run.scenario}`);
  find("results-box").hidden = false;
  setText(find("results-at"), `After ${plural(run.last, "slot")}`);
  const last = run.points.at(-1);
  const reference = referencePolicy();
  setText(find("results-difference"), `Minus ${reference}`);
  const value = ([mean, half]) => short(mean) + (run.settings.replications > 1 ? ` ±\u00a0${short(half)}` : "");
  const rows = policyNames().map((name) => {
    const { reward, static: fixed, contextual } = last.curves[name];
    return [name, value(reward), name === reference ? "–" : value(difference(last, name, reference)), value(fixed), value(contextual)];
  });
  const body = find("results");
  if (body.rows.length !== rows.length) {
    const row = () => make("tr", {}, make("th", { scope: "row" }), ...[1, 2, 3, 4].map(() => make("td", { className: "n" })));
    body.replaceChildren(...rows.map(row));
  }
  rows.forEach((texts, i) => texts.forEach((text, j) => setText(body.rows[i].cells[j], text)));
  showCollisions();
}

/** Show how often users collided. */
function showCollisions() {
  const { users } = run.points.at(-1);
  find("collided-box").hidden = !users;
  if (!users) return;
  setText(find("collided-at"), `After ${plural(run.last, "slot")}`);
  const value = ([mean, half]) => (mean === 0 ? "0" : short(mean) + (run.settings.replications > 1 ? ` ±\u00a0${short(half)}` : ""));
  const body = find("collided");
  body.replaceChildren(...Object.entries(users).map(([name, { collisions, last_collision: last, switches, messages }]) => {
    const [first, latest] = [Math.min(...last), Math.max(...last)];
    const when = latest === 0 ? "none" : first === latest ? count(latest) : `${first ? count(first) : "none"} to ${count(latest)}`;
    const cells = [value(collisions), when, value(switches), value(messages)];
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((text) => make("td", { className: "n" }, text)));
  }));
}

// --- start -----------------------------------------------------------------------------------------------------------

async function open() {
  try {
    options = await getJson("/v1/playground/options");
  } catch (error) {
    showError(`${error instanceof Refused ? error.message : "The service cannot be reached"}; load the page again.`);
    return;
  }
  const named = (list) => list.map(({ name }) => make("option", { value: name }, name));
  find("scenario").replaceChildren(...named(options.scenarios));
  if (options.traces.length) find("scenario").append(make("optgroup", { label: "Recorded traces" }, ...named(options.traces)));
  find("perturbation").replaceChildren(...options.perturbations.map((name) => make("option", { value: name }, name)));
  const described = (names, texts) => names.map((name) => make("option", { value: name }, texts[name] ?? name));
  find("collision").replaceChildren(...described(options.collision, COLLISION_TEXTS));
  find("observes").replaceChildren(...described(options.observes, OBSERVES_TEXTS));
  find("bits").max = options.limits.control_bits;
  find("slots").max = options.limits.slots;
  find("replications").max = options.limits.replications;
  find("channels").max = options.limits.channels;
  find("errors").max = options.limits.sensing_errors;
  find("noise").max = options.limits.noise;
  showMore(find("results-box"));
  showMore(find("collided-box"));
  fromHash();
  draw();
  find("run").disabled = false;
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  find("scenario").addEventListener("input", scenarioChosen); // before the form's own listener
  find("coordination").addEventListener("input", coordinationChosen);
  find("channels").addEventListener("change", () => {
    if (resizeLists(options)) formChanged();
  });
  find("restore").addEventListener("click", () => {
    fillScenario(options);
    formChanged();
    find("scenario").focus();
  });
  find("form").addEventListener("input", formChanged);
  find("stop").addEventListener("click", () => running?.abort());
  find("copy").addEventListener("click", copyLink);
  find("add").addEventListener("click", () => {
    const used = new Set(policyBoxes().map((box) => box.querySelector("select").value));
    const next = offered().find((one) => !used.has(one.name)) ?? offered()[0];
    addPolicy(next.name).querySelector("select").focus();
    formChanged();
  });
  for (const id of VIEWS) {
    find(id).addEventListener("change", () => {
      history.replaceState(null, "", toHash());
      draw();
    });
  }
  addEventListener("hashchange", () => {
    fromHash();
    draw();
  });
}

open();
