// Field names of the service before /v1, until its responses have the new ones.

const rename = (object, names) => {
  for (const [old, name] of Object.entries(names)) if (old in object) object[name] ??= object[old];
};

export function renameStatus(view) {
  rename(view, { broken: "policy_failure" });
  rename(view.counts, { asked_for: "requested", handed_out: "assigned", too_late: "missed_deadlines" });
  if (view.last) rename(view.last, { request: "request_id" });
  for (const channel of view.channel) rename(channel, { seen: "last_observed", seen_slot: "last_observed_slot" });
  return view;
}

export function renameExplanation(found) {
  rename(found, { id: "request_id", estimate_is: "estimate_meaning", width_is: "width_meaning" });
  for (const term of found.channels) rename(term, { handed_out: "assigned", primary_user: "primary_user_probability" });
  return found;
}
