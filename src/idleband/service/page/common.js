// Shared by both pages: requests with a token, event streams, helpers for elements and numbers.

const TOKEN = "idleband-token"; // key in sessionStorage, which is emptied when the tab is closed

/** Error response of the service; `message` is its detail line. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Fetch with the token, if there is one. Ask the user for a token when the service requires it, and try again. */
export async function call(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    const response = await fetch(path, { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401) throw new Refused(response.status, await detailOf(response));
    await askForToken(token);
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

async function detailOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text || `status ${response.status}`;
  }
}

/**
 * Yield the data of server-sent events as text. EventSource cannot send a token, so the stream is read with fetch.
 * `silence`: seconds without data after which the connection counts as lost.
 */
export async function* events(path, { signal, silence = Infinity } = {}) {
  const controller = new AbortController();
  const leave = () => controller.abort();
  signal?.addEventListener("abort", leave);
  let watchdog;
  try {
    signal?.throwIfAborted();
    const response = await call(path, { signal: controller.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
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
    controller.abort(); // ends the stream when the reader stops early
  }
}

export const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// --- the token -------------------------------------------------------------------------------------------------------

let asking = null; // one form for all waiting requests

/** Wait until there is another token than the refused one. */
function askForToken(refused) {
  const now = sessionStorage.getItem(TOKEN);
  if (now !== null && now !== refused) return Promise.resolve();
  asking ??= new Promise((done) => {
    const input = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const wrong = make("p", { className: "error", role: "alert" });
    if (refused !== null) wrong.textContent = "This token was refused.";
    const form = make(
      "form", { className: "card token", id: "token-form" },
      make("h2", {}, "This service requires a token"),
      make("p", {}, "The token is kept until you close this tab."),
      make("label", { htmlFor: "token" }, "Token"),
      input,
      make("button", { type: "submit" }, "Use this token"),
      wrong,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      // Other characters cannot be sent in a header, and tokens do not contain them.
      if (!/^[\x21-\x7e]+$/.test(token)) {
        wrong.textContent = "A token consists of letters, digits and signs without spaces.";
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

// A plain link cannot send the token, so the API document is fetched with it and opened.
document.querySelector("#api-link")?.addEventListener("click", async (event) => {
  if (sessionStorage.getItem(TOKEN) === null) return;
  event.preventDefault();
  const blob = await (await call(event.target.href)).blob();
  location.assign(URL.createObjectURL(blob));
});

// --- elements --------------------------------------------------------------------------------------------------------

export const find = (id) => document.getElementById(id);

/** Create an element with properties (attributes, if there is no such property) and children. */
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

/** Set a text only if it differs, to avoid needless layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Mark a scrolling box while more of its content is to the right. */
export function showMore(box) {
  const update = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", update, { passive: true });
  const sizes = new ResizeObserver(update);
  sizes.observe(box);
  sizes.observe(box.firstElementChild);
}

// --- numbers ---------------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => whole.format(value);

/** Format a number with about three digits and a typographic minus. */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 100 ? whole.format(size) : size.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
  return value < 0 && Number(text.replaceAll(",", "")) !== 0 ? `−${text}` : text;
}

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%` : "–");

/** Format a text as a sentence: capital letter and full stop. */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
