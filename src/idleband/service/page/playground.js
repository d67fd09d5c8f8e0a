// The playground: settings in a form and in the link, a run as a stream of checkpoints, curves that grow with it.

import { Chart } from "./chart.js";
import { count, events, find, getJson, make, plural, Refused, setText, short, showMore, upper } from "./common.js";

const FIRST = { // what is there when a student comes: press Run, and see something
  scenario: "S1", perturbation: "linear", users: "5", slots: "20000", replications: "3", seed: "0",
  show: "static", axis: "linear", policies: ["rca-m", "mp-lucb", "mp-belief-lucb"],
};
const FIELDS = ["scenario", "perturbation", "users", "slots", "replications", "seed"];
const READING = {
  static: ["Regret against the best fixed channels", "Lower is better: reward lost to somebody who knew the best fixed channels from the start."],
  contextual: ["Regret against the best by context", "Lower is better: reward lost to somebody who knew, in every slot, which channels its contexts favour."],
  reward: ["Reward per slot", "Higher is better: the mean reward of a slot, over all slots so far."],
};

const calm = matchMedia("(prefers-reduced-motion: reduce)");

let options = null; // what the service has to choose from
let running = null; // AbortController of the run
let run = null; // what is drawn: { asked: the settings sent, last: slot, curves: Map of name -> points }
const chart = new Chart(find("chart"), { x: "slots", y: "" });

// --- the form --------------------------------------------------------------------------------------------------------

let made = 0; // policies so far: makes ids

/** A policy's part of the form; `given` are the values of parameters that differ from the default. */
function addPolicy(name, given = {}) {
  const id = `policy-${++made}`;
  const select = make("select", { id, "aria-label": "Policy" });
  select.append(...options.policies.map((one) => make("option", { value: one.name }, one.name)));
  select.value = name;
  const remove = make("button", { type: "button", "aria-label": "Remove this policy" }, "Remove");
  const description = make("p");
  const parameters = make("details", {}, make("summary"), make("div"));
  const box = make("div", { className: "policy" }, make("div", { className: "pick" }, select, remove), description, parameters);
  const fill = (values) => {
    const policy = options.policies.find((one) => one.name === select.value);
    setText(description, policy.description);
    parameters.lastChild.replaceChildren(...policy.parameters.map((one) => parameterOf(one, `${id}-${one.name}`, values[one.name])));
    parameters.hidden = policy.parameters.length === 0;
    tellChanged();
  };
  const tellChanged = () => {
    const changed = parameters.querySelectorAll(".changed").length;
    setText(parameters.firstChild, `Parameters${changed ? ` (${changed} changed)` : ""}`);
  };
  select.addEventListener("change", () => fill({}));
  box.addEventListener("input", tellChanged);
  remove.addEventListener("click", () => {
    const next = box.nextElementSibling ?? box.previousElementSibling;
    box.remove();
    (next?.querySelector("select") ?? find("add")).focus();
    changed();
  });
  find("policies").append(box);
  fill(given);
  return box;
}

function parameterOf(parameter, id, value) {
  const { name, kind, words, meaning, allowed } = parameter;
  const choices = kind === "bool" ? ["true", "false"] : words;
  const input = choices.length
    ? make("select", { id }, ...choices.map((word) => make("option", { value: word }, word)))
    : make("input", { id, type: "text", inputMode: "decimal", autocomplete: "off" });
  const usual = String(parameter.default);
  input.value = value ?? usual;
  input.dataset.name = name;
  input.dataset.kind = kind;
  input.dataset.usual = usual;
  const note = [meaning, choices.length ? "" : allowed].filter(Boolean).join("; ");
  const box = make("div", { className: "parameter" }, make("label", { htmlFor: id }, name), input);
  box.append(make("small", {}, `${note}${note ? "; " : ""}default ${usual}`));
  const mark = () => box.classList.toggle("changed", isChanged(input));
  input.addEventListener("input", mark);
  mark();
  return box;
}

/** Whether a parameter differs from its default, as a number where it is one: 1 and 1.0 are the same. */
function isChanged(input) {
  const { kind, usual } = input.dataset;
  const text = input.value.trim();
  if (kind === "word" || kind === "bool") return text !== usual;
  return text === "" ? false : Number(text) !== Number(usual);
}

const policyBoxes = () => [...find("policies").children];

/** The policies as they stand in a link: NAME or NAME:key=value,key=value, as on the command line. */
function policyText(box) {
  const changed = [...box.querySelectorAll(".parameter input, .parameter select")].filter(isChanged);
  const said = changed.map((input) => `${input.dataset.name}=${input.value.trim()}`).join(",");
  return box.querySelector("select").value + (said && `:${said}`);
}

/** What the service is sent. */
function settings() {
  const number = (id) => Number(find(id).value);
  return {
    scenario: find("scenario").value,
    perturbation: find("perturbation").value,
    users: number("users"),
    horizon: number("slots"),
    replications: number("replications"),
    seed: number("seed"),
    policies: policyBoxes().map((box) => {
      const changed = [...box.querySelectorAll(".parameter input, .parameter select")].filter(isChanged);
      return { name: box.querySelector("select").value, parameters: Object.fromEntries(changed.map((input) => [input.dataset.name, valueOf(input)])) };
    }),
  };
}

function valueOf(input) {
  const text = input.value.trim();
  if (input.dataset.kind === "bool") return text === "true";
  // What is not a number goes as it is: the service says in its own words what would be.
  return input.dataset.kind === "word" || !Number.isFinite(Number(text)) ? text : Number(text);
}

/** Marks the fields that cannot be right. */
function markWrong() {
  for (const id of FIELDS) find(id).setAttribute("aria-invalid", String(!find(id).checkValidity()));
}

/** Takes the mark from those that were put right; whoever is still typing in another one is not told of it yet. */
function unmarkRight() {
  for (const id of FIELDS) if (find(id).checkValidity()) find(id).setAttribute("aria-invalid", "false");
}

const firstWrong = () => FIELDS.map(find).find((input) => input.getAttribute("aria-invalid") === "true");

/** One line about the first field that is marked; empty if none is. */
function mistake() {
  const input = firstWrong();
  return input ? `${input.labels[0].textContent}: must be a whole number from ${count(input.min)} to ${count(input.max)}.` : "";
}

// --- the link --------------------------------------------------------------------------------------------------------

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

function toHash() {
  const said = new URLSearchParams(FIELDS.map((id) => [id, find(id).value]));
  for (const box of policyBoxes()) said.append("policy", policyText(box));
  said.append("show", chosen("show"));
  said.append("axis", chosen("axis"));
  // A link that people may read: these signs need no escape behind a #.
  return `#${said.toString().replaceAll("%3A", ":").replaceAll("%3D", "=").replaceAll("%2C", ",")}`;
}

/** Fills the form from the link, or with the first settings where it has none; says what of it was not understood. */
function fromHash() {
  const said = new URLSearchParams(location.hash.slice(1));
  const unknown = [...said].filter(([key]) => ![...FIELDS, "policy", "show", "axis"].includes(key)).map(([key, value]) => `${key} = ${value}`);
  for (const id of FIELDS) {
    const [input, value] = [find(id), said.get(id) ?? FIRST[id]];
    input.value = value;
    if (input.value !== value) {
      unknown.push(`${id} = ${value}`);
      input.value = FIRST[id];
    }
  }
  for (const name of ["show", "axis"]) {
    const value = said.get(name) ?? FIRST[name];
    const radio = [...document.querySelectorAll(`input[name="${name}"]`)].find((one) => one.value === value);
    if (radio) radio.checked = true;
    else unknown.push(`${name} = ${value}`);
  }
  find("policies").replaceChildren();
  const listed = said.getAll("policy");
  for (const text of listed.slice(0, options.limits.policies)) {
    const [, name, list = ""] = text.match(/^([^:]*):?(.*)$/s);
    const policy = options.policies.find((one) => one.name === name);
    if (!policy) {
      unknown.push(`policy = ${name}`);
      continue;
    }
    const given = Object.fromEntries(list.split(",").filter(Boolean).map((one) => one.split(/=(.*)/s).slice(0, 2)));
    for (const key of Object.keys(given)) {
      if (!policy.parameters.some((one) => one.name === key)) unknown.push(`${name}: ${key}`);
    }
    addPolicy(name, given);
  }
  unknown.push(...listed.slice(options.limits.policies).map((text) => `policy = ${text} (more than ${options.limits.policies})`));
  if (policyBoxes().length === 0) FIRST.policies.forEach((name) => addPolicy(name));
  markWrong();
  // At the top, where whoever follows a link begins; the other line is where Run is, on a phone far below.
  setText(find("link-error"), [unknown.length ? `Not understood in the link: ${unknown.join("; ")}.` : "", mistake()].filter(Boolean).join(" "));
  tell("");
  adapt();
}

function changed() {
  unmarkRight();
  setText(find("link-error"), "");
  tell(mistake());
  history.replaceState(null, "", toHash());
  find("link-box").hidden = true;
  setText(find("copied"), "");
  adapt();
}

function adapt() {
  setText(find("scenario-note"), upper(options.scenario_notes[find("scenario").value]));
  find("add").disabled = policyBoxes().length >= options.limits.policies;
  const alone = policyBoxes().length === 1;
  for (const box of policyBoxes()) box.querySelector("button").disabled = alone;
}

async function copyLink() {
  history.replaceState(null, "", toHash());
  try {
    await navigator.clipboard.writeText(location.href);
    setText(find("copied"), "The link is copied: it opens this form with these settings.");
  } catch {
    // Browsers lend the clipboard to secure places only: here is the link, to be copied by hand.
    find("link-box").hidden = false;
    find("link").value = location.href;
    find("link").select();
    setText(find("copied"), "Copy the link from the field above.");
  }
}

const tell = (line) => setText(find("error"), line);

// --- the run ---------------------------------------------------------------------------------------------------------

async function start() {
  if (running) return;
  markWrong();
  setText(find("link-error"), "");
  tell(mistake());
  firstWrong()?.focus();
  if (firstWrong()) return;
  history.replaceState(null, "", toHash());
  const asked = settings();
  const began = performance.now();
  const next = { asked, last: 0, curves: new Map() }; // is drawn when it has something: until then, what was there stays
  let prepared = 0;
  let compiling;
  running = new AbortController();
  showRunning(true);
  let outcome = "The connection was lost, and the run ended with it.";
  try {
    setText(find("status"), "Starting");
    for await (const text of events(`/playground/run?settings=${encodeURIComponent(JSON.stringify(asked))}`, { signal: running.signal })) {
      const said = JSON.parse(text);
      clearTimeout(compiling);
      if (said.kind === "preparing") {
        const which = `${said.policy}, policy ${++prepared} of ${asked.policies.length}`;
        setText(find("status"), `Preparing ${which}`);
        // Hardly anything else takes this long.
        compiling = setTimeout(() => setText(find("status"), `Compiling ${which}: up to a minute or two, as it is used for the first time`), 2000);
      }
      if (said.kind === "error") throw new Refused(400, said.detail);
      if (said.kind === "end") outcome = `Done: ${count(asked.horizon)} slots in ${((performance.now() - began) / 1000).toFixed(1)} seconds.`;
      if (said.done !== undefined) progress(said.done);
      if (said.kind === "point") add(next, said);
    }
    if (outcome.startsWith("The connection")) tell(outcome);
  } catch (error) {
    const how = running.signal.aborted ? "Stopped" : "Ended";
    if (how === "Ended") tell(error instanceof Refused ? error.message : "The service cannot be reached.");
    outcome = `${how} after ${plural(next.last, "slot")}.${run && run !== next ? " What is shown is the run before." : ""}`;
  }
  clearTimeout(compiling);
  running = null;
  showRunning(false);
  find("progress").value = next.last / asked.horizon;
  draw();
  setText(find("status"), outcome);
}

function showRunning(on) {
  find("run").disabled = on;
  find("stop").disabled = !on;
  find("progress").hidden = false;
  if (on) {
    find("progress").removeAttribute("value"); // busy, no telling how far
    find("stop").focus({ preventScroll: true });
    const card = find("curves-card");
    // On a narrow page the curves are below the form.
    if (card.getBoundingClientRect().top > innerHeight / 2) card.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
  } else if (document.activeElement === document.body || document.activeElement === find("stop")) {
    find("run").focus({ preventScroll: true });
  }
}

function progress(done) {
  find("progress").value = done;
  // Tenths only: each change is read out to those who listen to the page.
  setText(find("status"), `Running: ${10 * Math.floor(10 * done)} %`);
}

function add(next, { t, curves }) {
  run = next;
  run.last = t;
  for (const [name, measures] of Object.entries(curves)) {
    if (!run.curves.has(name)) run.curves.set(name, []);
    run.curves.get(name).push({ t, ...measures });
  }
  if (run.waiting) return;
  run.waiting = true;
  requestAnimationFrame(() => {
    run.waiting = false;
    draw();
  });
}

// --- what is seen ----------------------------------------------------------------------------------------------------

function draw() {
  const measure = chosen("show");
  const [title, reading] = READING[measure];
  setText(find("curves-title"), title);
  const many = run?.asked.replications;
  setText(find("reading"), reading + (many > 1 ? ` Bands are 95 % intervals over ${many} replications, cut off where the chart ends.` : ""));
  find("chart").hidden = run === null;
  if (run === null) return;
  const series = [...run.curves].map(([name, points]) => ({ name, points: points.map((one) => [one.t, ...one[measure]]) }));
  chart.draw(series, { log: chosen("axis") === "log", until: run.asked.horizon, y: title });
  results();
}

/** What the run is of: the form may say something else by now. */
function runOf({ scenario, perturbation, users, horizon, replications, seed }) {
  return `Scenario ${scenario}, ${perturbation} perturbation, ${plural(users, "user")}, ${plural(horizon, "slot")}, ${plural(replications, "replication")}, seed ${seed}`;
}

function results() {
  setText(find("run-of"), runOf(run.asked));
  setText(find("results-of"), `Results: ${runOf(run.asked)}`);
  find("results-box").hidden = false;
  setText(find("results-at"), `After ${plural(run.last, "slot")}`);
  const body = find("results");
  const cells = [...run.curves].map(([name, points]) => {
    const last = points.at(-1);
    const value = ([mean, half]) => short(mean) + (run.asked.replications > 1 ? ` ±\u00a0${short(half)}` : "");
    return [name, value(last.static), value(last.contextual), value(last.reward)];
  });
  if (body.rows.length !== cells.length) {
    const row = () => make("tr", {}, make("th", { scope: "row" }), ...[1, 2, 3].map(() => make("td", { className: "n" })));
    body.replaceChildren(...cells.map(row));
  }
  cells.forEach((texts, i) => texts.forEach((text, j) => setText(body.rows[i].cells[j], text)));
}

// --- start -----------------------------------------------------------------------------------------------------------

async function open() {
  try {
    options = await getJson("/playground/options");
  } catch (error) {
    tell(`${error instanceof Refused ? error.message : "The service cannot be reached"}; load the page again.`);
    return;
  }
  find("scenario").replaceChildren(...options.scenarios.map((name) => make("option", { value: name }, name)));
  find("perturbation").replaceChildren(...options.perturbations.map((name) => make("option", { value: name }, name)));
  find("slots").max = options.limits.slots;
  find("replications").max = options.limits.replications;
  showMore(find("results-box"));
  fromHash();
  draw();
  find("run").disabled = false;
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  find("form").addEventListener("input", changed);
  find("stop").addEventListener("click", () => running?.abort());
  find("copy").addEventListener("click", copyLink);
  find("add").addEventListener("click", () => {
    const used = new Set(policyBoxes().map((box) => box.querySelector("select").value));
    const next = options.policies.find((one) => !used.has(one.name)) ?? options.policies[0];
    addPolicy(next.name).querySelector("select").focus();
    changed();
  });
  for (const id of ["measures", "axes"]) {
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
