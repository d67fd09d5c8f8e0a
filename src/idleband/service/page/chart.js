// Lines over slots, with bands for intervals and a legend that has the values. Lines differ in colour and in dashes.

import { count, make, makeSvg, setText, short } from "./common.js";

const MARGIN = { left: 60, right: 32, top: 12, bottom: 42 };

export class Chart {
  /** `box` is emptied and filled; `x` and `y` are what the axes show. */
  constructor(box, { x, y }) {
    this.x = x;
    this.y = y;
    this.series = [];
    this.log = false;
    this.grid = makeSvg("g", { class: "grid" });
    this.bands = makeSvg("g");
    this.lines = makeSvg("g");
    this.cursor = makeSvg("line", { class: "cursor", visibility: "hidden" });
    // The axis is chosen for the lines, so bands may go beyond it: an svg of its own cuts them off.
    this.plot = makeSvg("svg", {}, this.bands);
    this.svg = makeSvg("svg", { role: "img", class: "chart" }, this.grid, this.plot, this.lines, this.cursor);
    this.note = make("p", { className: "chart-at" });
    this.legend = make("ul", { className: "legend" });
    box.replaceChildren(this.legend, this.svg, this.note);
    this.keys = []; // of the legend: [name, value] elements
    this.pointed = null; // where the pointer is, in slots
    this.width = 0;
    new ResizeObserver(() => this.#resize()).observe(box);
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#point(null));
  }

  /**
   * Draw: `series` as [{ name, points: [[slots, value, half width], ...] }, ...]; `until` is where the axis ends, if not
   * at the last point; `log` for a logarithmic axis of slots.
   */
  draw(series, { log = false, until = 0, y = this.y } = {}) {
    Object.assign(this, { series, log, until, y });
    this.#paint();
  }

  #resize() {
    const { width, height } = this.svg.getBoundingClientRect();
    if ((width === this.width && height === this.height) || width === 0) return;
    Object.assign(this, { width, height });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { left: x, top: y, right, bottom } = MARGIN;
    const inner = { x, y, width: width - x - right, height: height - y - bottom };
    for (const [name, value] of Object.entries(inner)) this.plot.setAttribute(name, value);
    this.plot.setAttribute("viewBox", Object.values(inner).join(" ")); // the same coordinates as outside
    this.#paint();
  }

  #paint() {
    if (!this.width) return;
    const { left, right, top, bottom } = MARGIN;
    const shown = this.series.map(({ points }) => (this.log ? points.filter(([t]) => t > 0) : points));
    const all = shown.flat();
    const first = this.log ? Math.min(...all.map(([t]) => t), 10) : 0;
    const last = Math.max(this.until, first + 1, ...all.map(([t]) => t));
    const [low, high, step] = rounded(all);
    const place = this.log ? Math.log : (t) => t;
    const across = (this.width - left - right) / (place(last) - place(first));
    this.toX = (t) => left + (place(t) - place(first)) * across;
    const toY = (v) => top + ((high - v) / (high - low)) * (this.height - top - bottom);
    this.#axes(this.log ? decades(first, last) : steps(0, last, this.width < 480 ? 3 : 7), [low, high, step], toY);

    while (this.lines.children.length < shown.length) {
      const style = this.lines.children.length;
      this.bands.append(makeSvg("path", { class: `band s${style}` }));
      this.lines.append(makeSvg("path", { class: `line s${style}` }));
    }
    for (let i = 0; i < this.lines.children.length; i++) {
      const points = shown[i] ?? [];
      const at = ([t, v]) => `${this.toX(t).toFixed(1)},${toY(v).toFixed(1)}`;
      const upper = points.map(([t, v, half = 0]) => at([t, v + half]));
      const lower = points.map(([t, v, half = 0]) => at([t, v - half])).reverse();
      const banded = points.some(([, , half]) => half > 0);
      this.lines.children[i].setAttribute("d", points.length ? `M${points.map(at).join("L")}` : "");
      this.bands.children[i].setAttribute("d", banded ? `M${upper.join("L")}L${lower.join("L")}Z` : "");
    }
    this.#tell();
  }

  #axes(slots, [low, high, step], toY) {
    const key = [this.width, this.height, this.x, this.y, slots, low, high, this.toX(slots[0])].join();
    if (key === this.axesKey) return;
    this.axesKey = key;
    const { left, right, top, bottom } = MARGIN;
    const [end, base] = [this.width - right, this.height - bottom];
    const parts = [];
    for (let v = low; v <= high + step / 2; v += step) {
      const y = toY(v).toFixed(1);
      const zero = Math.abs(v) < step / 2;
      parts.push(makeSvg("line", { x1: left, x2: end, y1: y, y2: y, class: zero ? "zero" : "" }));
      parts.push(makeSvg("text", { x: left - 8, y, class: "y" }, zero ? "0" : tick(v, step)));
    }
    let free = this.width; // to the left of this, a label has room
    for (const t of [...slots].reverse()) {
      const x = this.toX(t);
      const half = count(t).length * 3.8;
      parts.push(makeSvg("line", { x1: x, x2: x, y1: base, y2: base + 5 }));
      if (x + half > free) continue;
      parts.push(makeSvg("text", { x, y: base + 18, "text-anchor": "middle" }, count(t)));
      free = x - half - 12;
    }
    parts.push(makeSvg("text", { x: end, y: this.height - 6, "text-anchor": "end", class: "name" }, this.x));
    this.grid.replaceChildren(...parts);
    this.cursor.setAttribute("y1", top);
    this.cursor.setAttribute("y2", base);
  }

  /** The values: the last ones, or those where the pointer is. */
  #tell() {
    while (this.keys.length < this.series.length) {
      const i = this.keys.length;
      const line = makeSvg("line", { x1: 1, x2: 33, y1: 6, y2: 6, class: `line s${i}` });
      const sample = makeSvg("svg", { class: "sample", viewBox: "0 0 34 12", "aria-hidden": "true" }, line);
      const [name, value] = [make("span"), make("b")];
      const item = make("li", {}, sample, name, " ", value);
      this.legend.append(item);
      this.keys.push({ item, name, value });
    }
    const said = [];
    let at = null;
    this.keys.forEach(({ item, name, value }, i) => {
      const one = this.series[i];
      item.hidden = !one;
      if (!one) return;
      const point = this.pointed === null ? one.points.at(-1) : nearest(one.points, this.pointed);
      at = point ? point[0] : at;
      const text = point ? short(point[1]) + (point[2] > 0 ? ` ± ${short(point[2])}` : "") : "";
      setText(name, one.name);
      setText(value, text);
      said.push(`${one.name} ${text}`);
    });
    this.cursor.setAttribute("visibility", this.pointed === null || at === null ? "hidden" : "visible");
    if (at !== null) {
      this.cursor.setAttribute("x1", this.toX(at));
      this.cursor.setAttribute("x2", this.toX(at));
    }
    setText(this.note, at === null ? "" : `${this.y} after ${count(at)} ${this.x}`);
    this.svg.setAttribute("aria-label", `${this.y} over slots. Last values: ${said.join("; ")}.`);
  }

  #point(event) {
    if (event === null) this.pointed = null;
    else {
      // The inverse of toX, found on the points that there are.
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      let best = Infinity;
      for (const [t] of this.series[0]?.points ?? []) {
        const distance = Math.abs(this.toX(t) - x);
        if (distance < best) [best, this.pointed] = [distance, t];
      }
    }
    this.#tell();
  }
}

function nearest(points, t) {
  return points.reduce((best, one) => (best && Math.abs(best[0] - t) <= Math.abs(one[0] - t) ? best : one), undefined);
}

/** Round limits and a round step that take in all values. Bands do not count: a few replications make them so wide that
    the lines would be flat. */
function rounded(points) {
  const values = points.map(([, v]) => v);
  let [low, high] = points.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  if (high - low < 1e-9) [low, high] = [low < 0 ? low - 0.5 : Math.max(0, low - 0.5), high + 0.5];
  if (low > 0 && low < (high - low) * 0.6) low = 0; // so near that leaving it out would mislead
  const step = roundStep((high - low) / 4.5);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step, step];
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 2.5, 5, 10].find((n) => n * power >= rough);
}

function steps(first, last, many) {
  const step = Math.max(1, roundStep((last - first) / many));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => first + i * step);
}

function decades(first, last) {
  const found = [];
  for (let t = 10 ** Math.ceil(Math.log10(first)); t <= last; t *= 10) found.push(t);
  return found;
}

function tick(value, step) {
  let digits = 0; // as many as the step needs
  while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  const text = digits ? Math.abs(value).toFixed(digits) : count(Math.abs(value));
  return value < 0 ? `−${text}` : text;
}
