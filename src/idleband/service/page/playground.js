// The playground: settings in a form and in the link, a run as a stream of checkpoints, curves that grow with it.

import { Chart } from "./chart.js";
import { count, events, find, getJson, make, Refused, setText, short, upper } from "./common.js";

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
let run = null; // what is drawn: { horizon, replications, curves: Map of name -> points }
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

/** One line about the first field that cannot be right, and the field marked; empty if all can. */
function mistake() {
  let line = "";
  for (const id of FIELDS) {
    const input = find(id);
    const wrong = !input.checkValidity();
    input.setAttribute("aria-invalid", String(wrong));
    if (!wrong || line) continue;
    line = `${input.labels[0].textContent}: must be a whole number from ${count(input.min)} to ${count(input.max)}.`;
    input.focus();
  }
  if (!line && policyBoxes().length === 0) line = "Policies: choose at least one.";
  return line;
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

/** Fills the form from the link, or with the first settings; says what the link has that is not known here. */
function fromHash() {
  const said = new URLSearchParams(location.hash.slice(1));
  const unknown = [];
  for (const id of FIELDS) {
    const [input, value] = [find(id), said.get(id) ?? FIRST[id]];
    input.value = value;
    input.removeAttribute("aria-invalid");
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
  for (const text of (said.has("policy") ? said.getAll("policy") : FIRST.policies).slice(0, options.limits.policies)) {
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
  tell(unknown.length ? `The link has what is not known here: ${unknown.join("; ")}.` : "");
  adapt();
}

function changed() {
  tell("");
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
  const line = mistake();
  tell(line);
  if (line) return;
  history.replaceState(null, "", toHash());
  const asked = settings();
  const began = performance.now();
  running = new AbortController();
  run = { horizon: asked.horizon, replications: asked.replications, curves: new Map() };
  showRunning(true);
  draw();
  let outcome = "The connection was lost, and the run ended with it.";
  try {
    setText(find("status"), "Starting");
    for await (const text of events(`/playground/run?settings=${encodeURIComponent(JSON.stringify(asked))}`, { signal: running.signal })) {
      const said = JSON.parse(text);
      if (said.kind === "preparing") setText(find("status"), `Preparing ${said.policy}; its first use takes up to a minute`);
      if (said.kind === "error") throw new Refused(400, said.detail);
      if (said.kind === "end") outcome = `Done: ${count(run.horizon)} slots in ${((performance.now() - began) / 1000).toFixed(1)} seconds.`;
      if (said.done !== undefined) progress(said.done);
      if (said.kind === "point") add(said);
    }
    if (outcome.startsWith("The connection")) tell(outcome);
  } catch (error) {
    if (running.signal.aborted) outcome = run.last ? `Stopped at slot ${count(run.last)}.` : "Stopped.";
    else {
      tell(error instanceof Refused ? error.message : "The service cannot be reached.");
      outcome = run.last ? `Ended at slot ${count(run.last)}.` : "Nothing was run.";
    }
  }
  running = null;
  showRunning(false);
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
  } else {
    find("progress").value = run.last ? run.last / run.horizon : 0;
    if (document.activeElement === document.body || document.activeElement === find("stop")) find("run").focus({ preventScroll: true });
  }
}

function progress(done) {
  find("progress").value = done;
  // Tenths only: each change is read out to those who listen to the page.
  setText(find("status"), `Running: ${10 * Math.floor(10 * done)} %`);
}

function add({ t, curves }) {
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
  const bands = run?.replications > 1 ? ` Bands are 95 % intervals over ${run.replications} replications.` : "";
  setText(find("reading"), reading + bands);
  find("chart").hidden = !running && !run?.last;
  if (run === null) return;
  const series = [...run.curves].map(([name, points]) => ({ name, points: points.map((one) => [one.t, ...one[measure]]) }));
  chart.draw(series, { log: chosen("axis") === "log", until: run.horizon, y: title });
  results();
}

function results() {
  find("results-box").hidden = run.curves.size === 0;
  setText(find("results-at"), run.last ? `After ${count(run.last)} slots` : "Policy");
  const body = find("results");
  const cells = [...run.curves].map(([name, points]) => {
    const last = points.at(-1);
    const value = ([mean, half]) => short(mean) + (run.replications > 1 ? ` ± ${short(half)}` : "");
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
