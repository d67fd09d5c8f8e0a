// Users without a base station, slot by slot: one row per channel, one column per slot, each user with its own number.
//
// The service sends the slots faster than they are shown; they are played at a chosen pace, or one by one.

import { count, find, make, plural, setText, short } from "./common.js";

const COLOURS = 6; // --u0 to --u5; numbers distinguish more users
const WINDOW = 100; // slots of the figures about the last slots
const MAX_LABEL = 110; // pixels for the name of a channel
const MAX_LISTED = 10; // users or channels in a sentence
const FOOT = 20; // pixels for the slot numbers
const MAX_PIXELS = 32_000; // height of a canvas that every browser can draw

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Clear a canvas, fit it to the resolution of the screen, and return its drawing context. */
function prepare(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, MAX_PIXELS / height);
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  return pen;
}

/** Return the colours of the page, which differ in dark mode. */
function palette() {
  const names = ["card", "sunk", "rule", "edge", "ink", "quiet", "tint", "accent"];
  const found = Object.fromEntries(names.map((name) => [name, variable(`--${name}`)]));
  found.users = Array.from({ length: COLOURS }, (_, i) => variable(`--u${i}`));
  return found;
}

const userColour = (colours, user) => colours.users[user % COLOURS];

/** Draw the slots of channels in which a primary user is present: `cells` are rectangles [x, y, width, height]. */
function drawBusy(pen, colours, cells) {
  if (!cells.length) return;
  const [width] = cells[0].slice(2);
  pen.beginPath();
  for (const cell of cells) pen.rect(...cell);
  pen.fillStyle = colours.sunk;
  pen.fill();
  pen.fillStyle = hatching(pen, colours, width);
  pen.fill();
}

/** Return diagonal lines as a pattern that repeats with the columns. */
function hatching(pen, colours, size) {
  const scale = pen.getTransform().a;
  const tile = new OffscreenCanvas(Math.round(size * scale), Math.round(size * scale));
  const to = tile.getContext("2d");
  to.scale(scale, scale);
  to.strokeStyle = colours.edge;
  to.lineWidth = 0.8;
  to.beginPath();
  for (let d = 0; d <= 2 * size; d += size / 4) {
    to.moveTo(d + 1, -1);
    to.lineTo(d - size - 1, size + 1);
  }
  to.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

function box(pen, x, y, w, h, round) {
  pen.beginPath();
  pen.roundRect(x + 1.5, y + 2, w - 3, h - 4, round);
}

/** Draw one user alone on a channel: filled if the channel is idle, outlined if a primary user is present. */
function drawUser(pen, colours, user, busy, x, y, w, h) {
  const colour = userColour(colours, user);
  box(pen, x, y, w, h, 4);
  pen.fillStyle = busy ? colours.card : colour;
  pen.fill();
  if (busy) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.8;
    pen.stroke();
  }
  pen.fillStyle = busy ? colour : colours.card;
  pen.font = `600 ${user > 99 ? 10 : 12}px system-ui, sans-serif`;
  pen.fillText(user, x + w / 2, y + h / 2 + 0.5);
}

/** Draw a collision between n users: angular, with the number of users. */
function drawCollision(pen, colours, n, x, y, w, h) {
  pen.fillStyle = colours.ink;
  pen.fillRect(x, y + 1, w, h - 2);
  pen.fillStyle = colours.card;
  pen.font = `700 ${n > 9 ? 10 : 12}px system-ui, sans-serif`;
  pen.fillText(`×${n}`, x + w / 2, y + h / 2 + 0.5);
}

const KEY = [
  ["a user alone on an idle channel", (pen, colours) => drawUser(pen, colours, 0, false, 0, 0, 20, 22)],
  ["a user alone on a busy channel", (pen, colours) => {
    drawBusy(pen, colours, [[0, 0, 20, 22]]);
    drawUser(pen, colours, 1, true, 0, 0, 20, 22);
  }],
  ["collision between 2 users", (pen, colours) => drawCollision(pen, colours, 2, 0, 0, 20, 22)],
  ["busy: a primary user is present", (pen, colours) => drawBusy(pen, colours, [[0, 0, 20, 22]])],
];

const listed = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** The recorded slots of one run: `begin` and `slots` messages of the service. */
class Slots {
  constructor({ users, channels, slots, policies, references }, settings) {
    Object.assign(this, { users, channels, slots, settings, policies, references });
    this.received = 0; // slots
    this.bound = null;
    this.busy = new Uint8Array(slots * channels.length);
    this.present = null;
    const sums = (type, width = 1) => new type((slots + 1) * width); // up to and including each slot
    this.of = new Map(policies.map((label) => [label, {
      picks: new Int16Array((slots + 1) * users),
      earned: sums(Float64Array, users), collided: sums(Int32Array, users),
      reward: sums(Float64Array), collisions: sums(Int32Array), switches: sums(Int32Array), messages: sums(Int32Array),
      last: sums(Int32Array), // slot of the last collision
    }]));
    this.besides = new Map(references.map((label) => [label, sums(Float64Array)]));
  }

  add({ first, last, busy, present, policies, references }) {
    const { users: N, channels: { length: K } } = this;
    busy.forEach((row, i) => {
      for (let k = 0; k < K; k++) this.busy[(first - 1 + i) * K + k] = row[k] === "1";
    });
    if (present) {
      this.present ??= new Uint8Array((this.slots + 1) * N);
      present.forEach((row, i) => {
        for (let j = 0; j < N; j++) this.present[(first + i) * N + j] = row[j] === "1";
      });
    }
    for (const [label, rewards] of Object.entries(references)) {
      const sum = this.besides.get(label);
      rewards.forEach((reward, i) => (sum[first + i] = sum[first + i - 1] + reward));
    }
    for (const [label, { picks, rewards, switches, messages }] of Object.entries(policies)) {
      const to = this.of.get(label);
      picks.forEach((row, i) => {
        const t = first + i;
        const here = new Int16Array(K); // users on each channel
        for (const k of row) if (k >= 0) here[k]++;
        let [collisions, reward] = [0, 0];
        for (let j = 0; j < N; j++) {
          const collides = row[j] >= 0 && here[row[j]] > 1 ? 1 : 0;
          collisions += collides;
          reward += rewards[i][j];
          to.picks[t * N + j] = row[j];
          to.collided[t * N + j] = to.collided[(t - 1) * N + j] + collides;
          to.earned[t * N + j] = to.earned[(t - 1) * N + j] + rewards[i][j];
        }
        to.reward[t] = to.reward[t - 1] + reward;
        to.collisions[t] = to.collisions[t - 1] + collisions;
        to.switches[t] = to.switches[t - 1] + switches[i];
        to.messages[t] = to.messages[t - 1] + messages[i];
        to.last[t] = collisions ? t : to.last[t - 1];
      });
    }
    this.received = last;
  }

  /** Return a channel as it is named in a sentence. */
  channel(k) {
    return this.channels[k] === String(k) ? `channel ${k}` : this.channels[k];
  }

  isBusy(t, k) {
    return this.busy[(t - 1) * this.channels.length + k] === 1;
  }

  isPresent(t, j) {
    return !this.present || this.present[t * this.users + j] === 1;
  }

  /** Return the users on each channel that is played in slot t, by channel. */
  played(label, t) {
    const { picks } = this.of.get(label);
    const found = new Map();
    for (let j = 0; j < this.users; j++) {
      const k = picks[t * this.users + j];
      if (k >= 0) found.set(k, [...(found.get(k) ?? []), j]);
    }
    return found;
  }
}

/** The part of the page that shows users and their channels. */
export class UsersView {
  constructor() {
    this.slots = null; // of the run that is shown
    this.at = 1; // slot that is shown
    this.position = 1; // the same with a fraction, while playing
    this.start = 1; // first slot of the strip
    this.playing = false;
    this.canvas = find("users-canvas");
    this.timeline = find("users-timeline");
    this.slider = find("users-slot");
    find("users-play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    find("users-next").addEventListener("click", () => this.#nextCollision());
    find("users-policy").addEventListener("change", () => this.#show());
    this.slider.addEventListener("input", () => {
      this.pause();
      this.#go(Number(this.slider.value));
    });
    this.canvas.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.#show()).observe(find("users-box"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#show());
  }

  /** Begin to show a run, or show none. */
  begin(message, settings, playing) {
    this.slots = message && new Slots(message, settings);
    find("users-box").hidden = !message;
    this.pause();
    if (!message) return;
    find("users-policy").replaceChildren(...message.policies.map((label) => make("option", { value: label }, label)));
    find("users-policy-label").hidden = message.policies.length < 2;
    this.slider.max = message.slots;
    setText(find("users-said"), "");
    this.at = this.position = this.start = 1;
    if (playing) this.play();
  }

  add(message) {
    const first = this.slots.received === 0;
    this.slots.add(message);
    if (first || !this.drawnTimeline || this.slots.received === this.slots.slots) this.#show();
  }

  /** No more slots will come: return how many there are. */
  end() {
    if (!this.slots) return 0;
    this.slots.slots = this.slider.max = this.slots.received;
    this.#show();
    return this.slots.slots;
  }

  setBound(reward) {
    this.slots.bound = reward;
    this.#show();
  }

  play() {
    setText(find("users-said"), "");
    if (this.at >= this.slots.slots) this.at = this.position = this.start = 1;
    this.playing = true;
    setText(find("users-play"), "Pause");
    let before = performance.now();
    const step = (now) => {
      if (!this.playing) return;
      this.position = Math.min(this.position + ((now - before) / 1000) * Number(find("users-speed").value), Math.max(1, this.slots.received));
      before = now;
      if (Math.floor(this.position) !== this.at) this.#show(Math.floor(this.position));
      if (this.at >= this.slots.slots) this.pause();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  pause() {
    this.playing = false;
    setText(find("users-play"), "Play");
  }

  #go(slot, said = "") {
    setText(find("users-said"), said);
    this.position = Math.max(1, Math.min(slot, this.slots.received));
    this.#show(this.position);
  }

  #nextCollision() {
    const { collisions } = this.slots.of.get(this.#policy);
    this.pause();
    for (let t = this.at + 1; t <= this.slots.received; t++) {
      if (collisions[t] === collisions[t - 1]) continue;
      this.#go(t, `Next collision in slot ${count(t)}.`);
      return;
    }
    setText(find("users-said"), `No collision between users after slot ${count(this.at)}, up to slot ${count(this.slots.received)}.`);
  }

  #click(event) {
    const slot = this.start + Math.floor((event.offsetX - this.labelWidth) / this.column);
    if (event.offsetX < this.labelWidth || slot > this.slots.received) return;
    this.pause();
    this.#go(slot);
  }

  get #policy() {
    return find("users-policy").value;
  }

  /** Show slot t, or the same slot again. */
  #show(t = this.at) {
    if (!this.slots?.received || find("users-box").hidden) return;
    this.at = t;
    this.slider.value = t;
    this.colours = palette();
    this.#drawStrip();
    this.#drawTimeline();
    this.#drawKey();
    this.#describe();
    this.#showFigures();
    this.#showUsers();
  }

  #drawStrip() {
    const { channels, users, received } = this.slots;
    const width = this.canvas.clientWidth;
    if (!width) return;
    const K = channels.length;
    const row = K <= 12 ? 26 : K <= 25 ? 21 : 17;
    const height = K * row + FOOT;
    const pen = prepare(this.canvas, width, height);
    pen.font = "13px system-ui, sans-serif";
    this.labelWidth = 14 + Math.min(MAX_LABEL, Math.max(...channels.map((name) => pen.measureText(name).width)));
    this.column = users > 100 ? 28 : 22;
    const room = Math.max(1, Math.floor((width - this.labelWidth) / this.column));
    if (this.at < this.start || this.at >= this.start + room) this.start = Math.max(1, this.at - room + 1);
    const end = Math.min(received, this.start + room - 1);
    const xOf = (t) => this.labelWidth + (t - this.start) * this.column;
    pen.fillStyle = this.colours.tint;
    pen.fillRect(xOf(this.at), 0, this.column, K * row);
    channels.forEach((name, k) => {
      pen.fillStyle = this.colours.rule;
      if (k) pen.fillRect(0, k * row - 0.5, width, 1);
      pen.fillStyle = this.colours.quiet;
      pen.textAlign = "right";
      pen.fillText(name, this.labelWidth - 9, (k + 0.5) * row, MAX_LABEL);
    });
    pen.textAlign = "center";
    const busy = [];
    for (let t = this.start; t <= end; t++) {
      for (let k = 0; k < K; k++) if (this.slots.isBusy(t, k)) busy.push([xOf(t), k * row, this.column, row]);
    }
    drawBusy(pen, this.colours, busy);
    for (let t = this.start; t <= end; t++) {
      const x = xOf(t);
      for (const [k, on] of this.slots.played(this.#policy, t)) {
        if (on.length > 1) drawCollision(pen, this.colours, on.length, x, k * row, this.column, row);
        else drawUser(pen, this.colours, on[0], this.slots.isBusy(t, k), x, k * row, this.column, row);
      }
      const every = end > 9999 ? 10 : 5;
      if (t % every === 0 || t === 1) {
        pen.font = "12px system-ui, sans-serif";
        pen.fillStyle = this.colours.quiet;
        pen.fillText(count(t), Math.min(x + this.column / 2, width - pen.measureText(count(t)).width / 2), K * row + FOOT / 2 + 2);
      }
    }
    pen.strokeStyle = this.colours.accent;
    pen.lineWidth = 2;
    pen.strokeRect(xOf(this.at), 1, this.column, K * row - 2);
  }

  /** Draw where in the recorded slots users collide. */
  #drawTimeline() {
    const { collisions } = this.slots.of.get(this.#policy);
    const { slots, received } = this.slots;
    const [width, height] = [this.timeline.clientWidth, 34];
    this.drawnTimeline = width > 0;
    if (!width) return;
    const pen = prepare(this.timeline, width, height);
    const bars = Math.min(slots, Math.max(1, Math.floor(width / 3)));
    const values = [];
    for (let i = 0; i < bars; i++) {
      const [from, to] = [Math.floor((i * slots) / bars), Math.min(received, Math.floor(((i + 1) * slots) / bars))];
      values.push(to > from ? (collisions[to] - collisions[from]) / (to - from) : 0);
    }
    const most = Math.max(1e-9, ...values);
    pen.fillStyle = this.colours.ink;
    values.forEach((value, i) => {
      const h = value > 0 ? Math.max(2, (value / most) * (height - 2)) : 0;
      pen.fillRect((i * width) / bars, height - 1 - h, Math.max(1, width / bars - 0.6), h);
    });
    pen.fillStyle = this.colours.edge;
    pen.fillRect(0, height - 1, (width * received) / slots, 1);
    pen.fillStyle = this.colours.accent;
    pen.fillRect(Math.min(width - 2, ((this.at - 0.5) * width) / slots - 1), 0, 2, height);
  }

  #drawKey() {
    const list = find("users-key");
    if (!list.children.length) list.append(...KEY.map(([meaning]) => make("li", {}, make("canvas"), meaning)));
    KEY.forEach(([, draw], i) => draw(prepare(list.children[i].firstChild, 20, 22), this.colours));
  }

  /** Describe the slot in words. */
  #describe() {
    const t = this.at;
    const { users } = this.slots;
    const { picks } = this.slots.of.get(this.#policy);
    const played = [...this.slots.played(this.#policy, t)].sort(([a], [b]) => a - b);
    const parts = [];
    let more = 0; // collisions that are not listed
    for (const [k, on] of played) {
      const busy = this.slots.isBusy(t, k) ? ", which is busy" : "";
      if (on.length > 1 && parts.length >= MAX_LISTED) more++;
      else if (on.length > 1) parts.push(`users ${listed(on)} collide on ${this.slots.channel(k)}${busy}`);
      else if (users <= MAX_LISTED) parts.push(`user ${on[0]} on ${this.slots.channel(k)}${busy}`);
    }
    if (more) parts.push(`collisions on ${plural(more, "other channel")}`);
    const among = (wanted) => Array.from({ length: users }, (_, j) => j).filter(wanted);
    const silent = among((j) => picks[t * users + j] < 0 && this.slots.isPresent(t, j));
    const absent = among((j) => !this.slots.isPresent(t, j));
    const who = (list) => (list.length > MAX_LISTED ? `${list.length} users` : `${list.length > 1 ? "users" : "user"} ${listed(list)}`);
    if (silent.length) parts.push(`${who(silent)} silent`);
    if (absent.length) parts.push(`${who(absent)} absent`);
    const text = `Slot ${count(t)}: ${parts.join("; ") || "no collision"}.`;
    setText(find("users-at"), text);
    this.slider.setAttribute("aria-valuetext", text);
    this.canvas.setAttribute("aria-label", `Channels of the users in the slots ${count(this.start)} to ${count(t)}. ${text}`);
  }

  #showFigures() {
    const t = this.at;
    const { settings, besides, bound, users } = this.slots;
    const { reward, collisions, switches, messages, last } = this.slots.of.get(this.#policy);
    const lately = (sum) => count(sum[t] - sum[Math.max(0, t - WINDOW)]);
    const span = (sum) => (t > WINDOW ? `in the last ${WINDOW} slots; ${count(sum[t])} in all` : `in ${plural(t, "slot")}`);
    const figures = [["Reward per slot", short(reward[t] / t), this.#policy]];
    for (const [label, sum] of besides) figures.push(["With a base station", short(sum[t] / t), label]);
    if (bound !== null) figures.push(["Upper bound", short(bound), "of the reward per slot in the long run"]);
    figures.push(
      ["Collisions between users", lately(collisions), span(collisions)],
      ["Slots since the last collision", last[t] ? count(t - last[t]) : "–", last[t] ? `it was in slot ${count(last[t])}` : "no collision so far"],
      ["Switches of channels", lately(switches), span(switches)],
      ["Messages", lately(messages), settings.control_bits ? span(messages) : "no control bits"],
    );
    if (this.slots.present) {
      const present = Array.from({ length: users }, (_, j) => j).filter((j) => this.slots.isPresent(t, j)).length;
      figures.push(["Users present", `${present} of ${users}`, "in this slot"]);
    }
    const tiles = find("users-tiles");
    if (tiles.children.length !== figures.length) {
      tiles.replaceChildren(...figures.map(() => make("div", {}, make("dt"), make("dd"), make("dd"))));
    }
    figures.forEach((texts, i) => texts.forEach((text, j) => setText(tiles.children[i].children[j], text)));
  }

  #showUsers() {
    const t = this.at;
    const { users } = this.slots;
    const { picks, earned, collided } = this.slots.of.get(this.#policy);
    const body = find("users-rows");
    if (body.rows.length !== users) {
      body.replaceChildren(...Array.from({ length: users }, (_, j) => {
        const badge = make("span", { className: `badge u${j % COLOURS}` }, String(j));
        return make("tr", {}, make("th", { scope: "row" }, badge), make("td"), make("td", { className: "n" }), make("td", { className: "n" }));
      }));
    }
    const on = this.slots.played(this.#policy, t);
    for (let j = 0; j < users; j++) {
      const k = picks[t * users + j];
      const place = k >= 0 ? `${this.slots.channel(k)}${on.get(k).length > 1 ? ", collision" : ""}` : this.slots.isPresent(t, j) ? "silent" : "absent";
      const { cells } = body.rows[j];
      setText(cells[1], place);
      setText(cells[2], short(earned[t * users + j] / t));
      setText(cells[3], count(collided[t * users + j]));
    }
  }
}
