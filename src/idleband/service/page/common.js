// What both pages need: calls with a token, event streams, small helpers for elements and numbers.

const TOKEN = "idleband-token"; // in sessionStorage: gone when the tab is closed

/** An answer that says no; `message` is the service's own line. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** fetch, with the token where there is one; asks for it where it is needed, and then goes on. */
export async function call(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    const answer = await fetch(path, { ...options, headers });
    if (answer.ok) return answer;
    if (answer.status !== 401) throw new Refused(answer.status, await lineOf(answer));
    await tokenInstead(token);
  }
}

export async function getJson(path, signal) {
  return (await call(path, { signal })).json();
}

export async function postJson(path, body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" } };
  if (body !== undefined) options.body = JSON.stringify(body);
  return (await call(path, options)).json();
}

async function lineOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text || `status ${answer.status}`;
  }
}

/**
 * The events of a stream, as text. EventSource cannot send a token, so the stream is read by hand.
 * `silence`: seconds without a byte after which the connection counts as lost.
 */
export async function* events(path, { signal, silence = Infinity } = {}) {
  const own = new AbortController();
  const leave = () => own.abort();
  signal?.addEventListener("abort", leave);
  let watchdog;
  try {
    signal?.throwIfAborted();
    const answer = await call(path, { signal: own.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      if (silence !== Infinity) watchdog = setTimeout(leave, silence * 1000);
      const { value, done } = await reader.read();
      clearTimeout(watchdog);
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
    }
  } finally {
    clearTimeout(watchdog);
    signal?.removeEventListener("abort", leave);
    own.abort(); // whoever stops listening ends the stream
  }
}

export const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// --- the token -------------------------------------------------------------------------------------------------------

let asking = null; // one form, however many calls wait for it

/** Waits until there is another token than the one that was refused. */
function tokenInstead(refused) {
  const now = sessionStorage.getItem(TOKEN);
  if (now !== null && now !== refused) return Promise.resolve();
  asking ??= new Promise((done) => {
    const input = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const wrong = make("p", { className: "error", role: "alert" });
    if (refused !== null) wrong.textContent = "This token was refused.";
    const form = make(
      "form", { className: "card token", id: "token-form" },
      make("h2", {}, "This service asks for a token"),
      make("p", {}, "It is kept in this tab until you close it."),
      make("label", { htmlFor: "token" }, "Token"),
      input,
      make("button", { type: "submit" }, "Use this token"),
      wrong,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      // Anything else cannot be sent in a header, and no token has it.
      if (!/^[\x21-\x7e]+$/.test(token)) {
        wrong.textContent = "A token has letters, digits and signs, and no space.";
        return;
      }
      sessionStorage.setItem(TOKEN, token);
      form.remove();
      asking = null;
      done();
    });
    document.querySelector("main").prepend(form);
    input.focus();
  });
  return asking;
}

// A plain link cannot send the token, so the API document is fetched and shown from here.
document.querySelector("#api-link")?.addEventListener("click", async (event) => {
  if (sessionStorage.getItem(TOKEN) === null) return;
  event.preventDefault();
  const blob = await (await call(event.target.href)).blob();
  location.assign(URL.createObjectURL(blob));
});

// --- elements --------------------------------------------------------------------------------------------------------

export const find = (id) => document.getElementById(id);

/** An element with properties (attributes, where there is no such property) and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Sets a text only if it is another: most do not change from one look to the next. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Marks a box as long as what it holds goes on to its right: its edge shows that. */
export function showMore(box) {
  const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  sizes.observe(box);
  sizes.observe(box.firstElementChild);
}

// --- numbers ---------------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => whole.format(value);

/** A number with about three digits, with a true minus. */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 100 ? whole.format(size) : size.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
  return value < 0 && Number(text.replaceAll(",", "")) !== 0 ? `−${text}` : text;
}

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%` : "–");

/** A text as a sentence. */
export const upper = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
