// The fields of the playground's form that describe the channels: preset, K, p01 and p10.

import { find } from "./common.js";

let listsFor = 0; // number of channels that lists of probabilities were last made for

/** Return the preset that is selected; undefined if a trace is. */
export const presetOf = (options) => options.scenarios.find(({ name }) => name === find("scenario").value);

/** Return the trace that is selected; undefined if a preset is. */
export const traceOf = (options) => options.traces.find(({ name }) => name === find("scenario").value);

/** Return the values in a field, separated by commas or spaces. */
export const valuesIn = (id) => find(id).value.split(/[\s,;]+/).filter(Boolean);

/** Return the numbers in a field; NaN for a value that is not a number. */
export const probabilities = (id) => valuesIn(id).map(Number);

/** Return K values: a list is cut off, or continued from its start. */
export const expand = (values, K) => (K >= 1 ? Array.from({ length: K }, (_, i) => values[i % values.length]) : values);

/** Fill in the channels of the selected preset or trace. */
export function fillScenario(options) {
  const trace = traceOf(options);
  if (trace) {
    find("channels").value = trace.channels;
    return;
  }
  const preset = presetOf(options);
  find("channels").value = preset.p01.length;
  for (const id of ["p01", "p10"]) find(id).value = preset[id].join(", ");
  listsFor = preset.p01.length;
}

/** Return whether the channels differ from those of the preset. */
export function isEdited(options) {
  if (traceOf(options)) return false;
  const preset = presetOf(options);
  const K = Number(find("channels").value);
  if (K !== preset.p01.length) return true;
  return ["p01", "p10"].some((id) => {
    const values = probabilities(id);
    return values.length === 0 || expand(values, Math.max(K, values.length)).join() !== preset[id].join();
  });
}

/** Fit the lists of probabilities to a changed number of channels; return whether they were changed. */
export function resizeLists(options) {
  const K = Number(find("channels").value);
  if (!Number.isInteger(K) || K < 1 || K > options.limits.channels) return false;
  let changed = false;
  for (const id of ["p01", "p10"]) {
    const values = probabilities(id);
    if (values.length === listsFor && values.length > 1 && K !== listsFor) {
      find(id).value = expand(values, K).join(", ");
      changed = true;
    }
  }
  listsFor = K;
  return changed;
}

/** Set or remove the validation messages of p01, p10 and the regime change. */
export function validateScenario(options) {
  if (traceOf(options)) {
    for (const id of ["p01", "p10", "change"]) find(id).setCustomValidity("");
    return;
  }
  const both = find("change").value === "on" && find("dwell").value !== "geometric";
  find("change").setCustomValidity(both ? "needs geometric dwell times" : "");
  const K = Number(find("channels").value);
  const allChannels = K === 1 ? "must be one value" : `must be one value for all channels, or ${K} values, one per channel`;
  for (const id of ["p01", "p10"]) {
    const values = probabilities(id);
    const bad = valuesIn(id).find((text) => !(Number(text) > 0 && Number(text) <= 1));
    let message = "";
    if (values.length === 0) message = allChannels;
    else if (bad !== undefined) message = `${bad} must be a number above 0 and at most 1`;
    else if (values.length !== 1 && values.length !== K) message = `has ${values.length} values; ${allChannels}`;
    find(id).setCustomValidity(message);
  }
  if (probabilities("p01").length === K || probabilities("p10").length === K) listsFor = K;
}
