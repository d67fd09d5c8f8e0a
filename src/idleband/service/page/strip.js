// The last slots of the channels as symbols: a row for each channel, a column for each slot, the latest at the right.
//
// It stands still while somebody points at it, has it focused or has a slot explained: nobody can hit what moves.

import { count } from "./common.js";

const LABEL = 38; // pixels for the channel's number
const COLUMN = 10; // pixels of a slot

/** What became of a channel, as the service counts it: name, the colour's variable, the symbol. */
export const OUTCOMES = [
  { says: "waiting for a report", colour: "--waiting", draw: ring },
  { says: "free, and paid", colour: "--free", draw: square },
  { says: "busy: a primary user", colour: "--busy", draw: cross },
  { says: "free, but spoilt by noise", colour: "--spoilt", draw: triangle },
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

/** A canvas as sharp as the screen, emptied, with its pen. */
function sharp(canvas, width, height) {
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

/** The symbols and what they mean. */
export function drawKey(list) {
  list.replaceChildren(
    ...OUTCOMES.map(({ says, colour, draw }) => {
      const [item, canvas] = [document.createElement("li"), document.createElement("canvas")];
      const pen = sharp(canvas, 14, 14);
      pen.fillStyle = pen.strokeStyle = colourOf(colour);
      draw(pen, 7, 7, 4);
      item.append(canvas, says);
      return item;
    }),
  );
}

export class Strip {
  /** `explain` is called with the slot that was chosen. */
  constructor(box, canvas, note, explain) {
    Object.assign(this, { box, canvas, note, explain });
    this.slots = []; // as the service sends them
    this.channels = []; // one a row
    this.rowHeight = 34;
    this.cursor = null; // slot under the pointer or the keys
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

  /** The slots that there is room for. */
  #shown() {
    const room = Math.max(1, Math.floor((this.canvas.clientWidth - LABEL) / COLUMN));
    return this.slots.slice(-room);
  }

  draw() {
    const [width, height] = [this.canvas.clientWidth, this.channels.length * this.rowHeight];
    if (!width || !height) return;
    const pen = sharp(this.canvas, width, height);
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
    pen.font = "13px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const [rule, quiet] = [colourOf("--rule"), colourOf("--quiet")];
    this.channels.forEach((channel, row) => {
      pen.fillStyle = rule;
      if (row) pen.fillRect(0, row * this.rowHeight - 1, width, 1);
      pen.fillStyle = quiet;
      pen.fillText(String(channel + 1), LABEL - 10, (row + 0.5) * this.rowHeight);
    });
    const rowOf = new Map(this.channels.map((channel, row) => [channel, row]));
    shown.forEach((slot, i) => {
      const x = columnOf(i) + COLUMN / 2;
      for (const [channel, what] of slot.outcomes) {
        const row = rowOf.get(channel);
        if (row === undefined) continue;
        pen.fillStyle = pen.strokeStyle = colours[what];
        OUTCOMES[what].draw(pen, x, (row + 0.5) * this.rowHeight, 3.6);
      }
    });
    this.#tell(shown);
  }

  #tell(shown) {
    if (!shown.length) {
      this.note.textContent = "Recent slots: none since the service started";
      return;
    }
    const at = shown.find(({ slot }) => slot === (this.cursor ?? this.pinned));
    const text = at
      ? `Slot ${count(at.slot)}${at.slot === this.pinned ? ", explained below; held" : ": press to explain"}`
      : `Slots ${count(shown[0].slot)} to ${count(shown.at(-1).slot)}; press one to explain it`;
    if (this.note.textContent !== text) this.note.textContent = text;
    const now = at ?? shown.at(-1);
    this.box.setAttribute("aria-valuemin", shown[0].slot);
    this.box.setAttribute("aria-valuemax", shown.at(-1).slot);
    this.box.setAttribute("aria-valuenow", now.slot);
    const listed = now.outcomes.slice(0, 12).map(([k, what]) => `channel ${k + 1} ${OUTCOMES[what].says}`);
    this.box.setAttribute("aria-valuetext", `Slot ${now.slot}: ${listed.join(", ")}`);
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
