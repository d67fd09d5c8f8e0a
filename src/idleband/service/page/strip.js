// The recent slots as symbols: one row per channel, one column per slot, the latest at the right.
//
// The strip does not move while it is pointed at or focused, or while one of its slots is explained.

import { count } from "./common.js";

const MAX_LABEL = 110; // pixels for the name of a channel
const COLUMN = 10; // pixels of a slot

/** Outcomes of an assigned channel, numbered as in live_view.py. */
export const OUTCOMES = [
  { meaning: "not reported yet", colour: "--pending", draw: ring },
  { meaning: "idle, full reward", colour: "--paid", draw: square },
  { meaning: "busy: collision with a primary user", colour: "--busy", draw: cross },
  { meaning: "idle, low reward: perturbed", colour: "--perturbed", draw: triangle },
];

function square(pen, x, y, r) {
  pen.fillRect(x - r, y - r, 2 * r, 2 * r);
}

function cross(pen, x, y, r) {
  pen.beginPath();
  pen.moveTo(x - r, y - r);
  pen.lineTo(x + r, y + r);
  pen.moveTo(x + r, y - r);
  pen.lineTo(x - r, y + r);
  pen.stroke();
}

function triangle(pen, x, y, r) {
  pen.beginPath();
  pen.moveTo(x, y - r);
  pen.lineTo(x + r, y + r);
  pen.lineTo(x - r, y + r);
  pen.closePath();
  pen.stroke();
}

function ring(pen, x, y, r) {
  pen.beginPath();
  pen.arc(x, y, r * 0.6, 0, 2 * Math.PI);
  pen.stroke();
}

/** Clear a canvas, fit it to the resolution of the screen, and return its drawing context. */
function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.lineWidth = 1.8;
  return pen;
}

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Show the symbols with their meanings. */
export function drawKey(list) {
  list.replaceChildren(
    ...OUTCOMES.map(({ meaning, colour, draw }) => {
      const [item, canvas] = [document.createElement("li"), document.createElement("canvas")];
      const pen = prepare(canvas, 14, 14);
      pen.fillStyle = pen.strokeStyle = colourOf(colour);
      draw(pen, 7, 7, 4);
      item.append(canvas, meaning);
      return item;
    }),
  );
}

export class Strip {
  /** `explain` is called with the selected slot; `label` returns the name of a channel. */
  constructor(box, canvas, note, explain, label) {
    Object.assign(this, { box, canvas, note, explain, label });
    this.slots = []; // as the service sends them
    this.channels = []; // one per row
    this.rowHeight = 34;
    this.labelWidth = 0; // pixels
    this.cursor = null; // slot under the pointer, or selected with the keyboard
    this.pinned = null; // slot that is explained
    this.pointing = false;
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => this.#leave());
    box.addEventListener("click", (event) => this.#click(event));
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("blur", () => this.#leave());
    new ResizeObserver(() => this.draw()).observe(box);
  }

  get held() {
    return this.pointing || this.pinned !== null || this.box.matches(":focus");
  }

  show(slots, channels, rowHeight) {
    if (!this.held) this.slots = slots;
    Object.assign(this, { channels, rowHeight });
    this.draw();
  }

  release() {
    this.pinned = this.cursor = null;
    this.pointing = false;
    this.box.blur();
  }

  /** Return the latest slots that fit. */
  #shown() {
    const room = Math.max(1, Math.floor((this.canvas.clientWidth - this.labelWidth) / COLUMN));
    return this.slots.slice(-room);
  }

  draw() {
    const [width, height] = [this.canvas.clientWidth, this.channels.length * this.rowHeight];
    if (!width || !height) return;
    const pen = prepare(this.canvas, width, height);
    pen.font = "13px system-ui, sans-serif";
    const labels = this.channels.map((channel) => this.label(channel));
    this.labelWidth = 16 + Math.min(MAX_LABEL, Math.max(0, ...labels.map((text) => pen.measureText(text).width)));
    const shown = this.#shown();
    const columnOf = (i) => width - (shown.length - i) * COLUMN;
    const colours = OUTCOMES.map(({ colour }) => colourOf(colour));
    shown.forEach((slot, i) => {
      if (slot.slot !== this.pinned && slot.slot !== this.cursor) return;
      pen.fillStyle = colourOf("--tint");
      pen.fillRect(columnOf(i), 0, COLUMN, height);
      pen.strokeStyle = colourOf("--accent");
      pen.strokeRect(columnOf(i) + 0.5, 1, COLUMN - 1, height - 2);
    });
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const [rule, quiet] = [colourOf("--rule"), colourOf("--quiet")];
    labels.forEach((text, row) => {
      pen.fillStyle = rule;
      if (row) pen.fillRect(0, row * this.rowHeight - 1, width, 1);
      pen.fillStyle = quiet;
      pen.fillText(text, this.labelWidth - 10, (row + 0.5) * this.rowHeight, MAX_LABEL);
    });
    const rowOf = new Map(this.channels.map((channel, row) => [channel, row]));
    shown.forEach((slot, i) => {
      const x = columnOf(i) + COLUMN / 2;
      for (const [channel, outcome] of slot.outcomes) {
        const row = rowOf.get(channel);
        if (row === undefined) continue;
        pen.fillStyle = pen.strokeStyle = colours[outcome];
        OUTCOMES[outcome].draw(pen, x, (row + 0.5) * this.rowHeight, 3.6);
      }
    });
    this.#describe(shown);
  }

  #describe(shown) {
    if (!shown.length) {
      this.note.textContent = "No slots since the allocator was opened";
      return;
    }
    const at = shown.find(({ slot }) => slot === (this.cursor ?? this.pinned));
    const text = at
      ? `Slot ${count(at.slot)}${at.slot === this.pinned ? ": held, explained below" : ": click to explain"}`
      : `Slots ${count(shown[0].slot)} to ${count(shown.at(-1).slot)}; click one to explain it`;
    if (this.note.textContent !== text) this.note.textContent = text;
    const now = at ?? shown.at(-1);
    this.box.setAttribute("aria-valuemin", shown[0].slot);
    this.box.setAttribute("aria-valuemax", shown.at(-1).slot);
    this.box.setAttribute("aria-valuenow", now.slot);
    const texts = now.outcomes.slice(0, 12).map(([k, outcome]) => `channel ${this.label(k)} ${OUTCOMES[outcome].meaning}`);
    this.box.setAttribute("aria-valuetext", `Slot ${now.slot}: ${texts.join(", ")}`);
  }

  #at(event) {
    const shown = this.#shown();
    const right = this.canvas.getBoundingClientRect().right;
    return shown[shown.length - 1 - Math.floor((right - event.clientX) / COLUMN)] ?? null;
  }

  #point(event) {
    this.pointing = event.pointerType === "mouse";
    this.cursor = this.#at(event)?.slot ?? null;
    this.draw();
  }

  #leave() {
    this.pointing = false;
    this.cursor = null;
    this.draw();
  }

  #click(event) {
    const slot = this.#at(event);
    if (slot) this.explain(slot);
  }

  #key(event) {
    const shown = this.#shown();
    if (!shown.length) return;
    const at = shown.findIndex(({ slot }) => slot === (this.cursor ?? this.pinned));
    const from = at < 0 ? shown.length : at;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to !== undefined) this.cursor = shown[Math.min(shown.length - 1, Math.max(0, to))].slot;
    else if (event.key === "Enter" || event.key === " ") this.explain(shown[at < 0 ? shown.length - 1 : at]);
    else if (event.key === "Escape") this.cursor = null;
    else return;
    event.preventDefault();
    this.draw();
  }
}
