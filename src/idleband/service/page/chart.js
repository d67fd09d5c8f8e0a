// A line chart over slots, with bands for intervals and a legend that shows the values. Lines differ in colour and dashes.

import { count, make, makeSvg, setText, short } from "./common.js";

const MARGIN = { left: 60, right: 32, top: 12, bottom: 42 };

export class Chart {
  /** Replace the content of `box` with a chart; `x` and `y` name the axes. */
  constructor(box, { x, y }) {
    this.x = x;
    this.y = y;
    this.series = [];
    this.log = false;
    this.grid = makeSvg("g", { class: "grid" });
    this.bands = makeSvg("g");
    this.lines = makeSvg("g");
    this.cursor = makeSvg("line", { class: "cursor", visibility: "hidden" });
    // Bands and early points may exceed the y axis; the nested svg clips them.
    this.plot = makeSvg("svg", {}, this.bands, this.lines);
    this.svg = makeSvg("svg", { role: "img", class: "chart" }, this.grid, this.plot, this.cursor);
    this.note = make("p", { className: "chart-at" });
    this.legend = make("ul", { className: "legend" });
    box.replaceChildren(this.legend, this.svg, this.note);
    this.keys = []; // elements of the legend
    this.pointed = null; // slot under the pointer
    this.from = 0;
    this.width = 0;
    new ResizeObserver(() => this.#resize()).observe(box);
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#point(null));
  }

  /**
   * Draw `series`: [{ name, points: [[slots, value, half width], ...], style }, ...]. The slot axis ends at `until` or
   * at the last point, and is logarithmic with `log`. Points before slot `from` do not count for the y axis.
   */
  draw(series, { log = false, until = 0, from = 0, y = this.y } = {}) {
    Object.assign(this, { series, log, until, from, y });
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
    this.plot.setAttribute("viewBox", Object.values(inner).join(" ")); // same coordinates as the outer svg
    this.#paint();
  }

  #paint() {
    if (!this.width) return;
    const { left, right, top, bottom } = MARGIN;
    const shown = this.series.map(({ points }) => (this.log ? points.filter(([t]) => t > 0) : points));
    const all = shown.flat();
    const first = this.log ? Math.min(...all.map(([t]) => t), 10) : 0;
    const last = Math.max(this.until, first + 1, ...all.map(([t]) => t));
    const settled = all.filter(([t]) => t >= this.from);
    const [low, high, step] = roundLimits(settled.length ? settled : all);
    const place = this.log ? Math.log : (t) => t;
    const across = (this.width - left - right) / (place(last) - place(first));
    this.toX = (t) => left + (place(t) - place(first)) * across;
    const toY = (v) => top + ((high - v) / (high - low)) * (this.height - top - bottom);
    this.#axes(this.log ? decades(first, last) : steps(0, last, this.width < 480 ? 3 : 7), [low, high, step], toY);

    while (this.lines.children.length < shown.length) {
      this.bands.append(makeSvg("path"));
      this.lines.append(makeSvg("path"));
    }
    for (let i = 0; i < this.lines.children.length; i++) {
      const points = shown[i] ?? [];
      this.lines.children[i].setAttribute("class", `line s${this.#style(i)}`);
      this.bands.children[i].setAttribute("class", `band s${this.#style(i)}`);
      const at = ([t, v]) => `${this.toX(t).toFixed(1)},${toY(v).toFixed(1)}`;
      const upper = points.map(([t, v, half = 0]) => at([t, v + half]));
      const lower = points.map(([t, v, half = 0]) => at([t, v - half])).reverse();
      const banded = points.some(([, , half]) => half > 0);
      this.lines.children[i].setAttribute("d", points.length ? `M${points.map(at).join("L")}` : "");
      this.bands.children[i].setAttribute("d", banded ? `M${upper.join("L")}L${lower.join("L")}Z` : "");
    }
    this.#showValues();
  }

  #style(i) {
    return this.series[i]?.style ?? i;
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
    let free = this.width; // a label fits to the left of this
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

  /** Show the values under the pointer, or the last ones, in the legend. */
  #showValues() {
    while (this.keys.length < this.series.length) {
      const line = makeSvg("line", { x1: 1, x2: 33, y1: 6, y2: 6 });
      const sample = makeSvg("svg", { class: "sample", viewBox: "0 0 34 12", "aria-hidden": "true" }, line);
      const [name, value] = [make("span"), make("b")];
      const item = make("li", {}, sample, name, " ", value);
      this.legend.append(item);
      this.keys.push({ item, line, name, value });
    }
    const values = [];
    let at = null;
    this.keys.forEach(({ item, line, name, value }, i) => {
      const one = this.series[i];
      item.hidden = !one;
      if (!one) return;
      line.setAttribute("class", `line s${this.#style(i)}`);
      const point = this.pointed === null ? one.points.at(-1) : nearest(one.points, this.pointed);
      at = point ? point[0] : at;
      const text = point ? short(point[1]) + (point[2] > 0 ? ` ± ${short(point[2])}` : "") : "";
      setText(name, one.name);
      setText(value, text);
      values.push(`${one.name} ${text}`);
    });
    this.cursor.setAttribute("visibility", this.pointed === null || at === null ? "hidden" : "visible");
    if (at !== null) {
      this.cursor.setAttribute("x1", this.toX(at));
      this.cursor.setAttribute("x2", this.toX(at));
    }
    setText(this.note, at === null ? "" : `${this.y} after ${count(at)} ${this.x}`);
    this.svg.setAttribute("aria-label", `${this.y} over slots. Last values: ${values.join("; ")}.`);
  }

  #point(event) {
    if (event === null) this.pointed = null;
    else {
      // The inverse of toX, restricted to existing points.
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      let best = Infinity;
      for (const [t] of this.series[0]?.points ?? []) {
        const distance = Math.abs(this.toX(t) - x);
        if (distance < best) [best, this.pointed] = [distance, t];
      }
    }
    this.#showValues();
  }
}

function nearest(points, t) {
  return points.reduce((best, one) => (best && Math.abs(best[0] - t) <= Math.abs(one[0] - t) ? best : one), undefined);
}

/** Return round limits and a round step that include all values. Bands are ignored: with few replications they are so
    wide that the lines would look flat. */
function roundLimits(points) {
  const values = points.map(([, v]) => v);
  let [low, high] = points.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  if (high - low < 1e-9) [low, high] = [low < 0 ? low - 0.5 : Math.max(0, low - 0.5), high + 0.5];
  if (low > 0 && low < (high - low) * 0.6) low = 0; // include a zero that is near
  const step = roundStep((high - low) / 4.5);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step, step];
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 2.5, 5, 10].find((n) => n * power >= rough);
}

function steps(first, last, number) {
  const step = Math.max(1, roundStep((last - first) / number));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => first + i * step);
}

function decades(first, last) {
  const found = [];
  for (let t = 10 ** Math.ceil(Math.log10(first)); t <= last; t *= 10) found.push(t);
  return found;
}

function tick(value, step) {
  let digits = 0; // of the step
  while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  const text = digits ? Math.abs(value).toFixed(digits) : count(Math.abs(value));
  return value < 0 ? `−${text}` : text;
}
