"use strict";

// A form made from /schema, the decision of /predict as it is filled in, and the options of /explain with a picture.

const N_OPTIONS = 3;
const N_EXAMPLES = 12;
const byId = (id) => document.getElementById(id);
const state = { form: null, fields: [], decision: null, samples: new Map(), answer: null };

// ---- small tools ---------------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const space = tag.startsWith("svg:") ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, tag.replace("svg:", ""));
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const numbers = new Intl.NumberFormat("en", { maximumSignificantDigits: 8 });
const percent = (p) => (p > 0 && p < 0.005 ? "under 1\u00a0%" : p < 1 && p > 0.995 ? "over 99\u00a0%" : `${Math.round(100 * p)}\u00a0%`);
const quote = (label) => `“${formatValue(label)}”`;
const toSentence = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/([^.?!])$/, "$1.");

function formatValue(value) {
  if (value === null || value === undefined) return "unknown";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? numbers.format(value) : String(value);
}

function withUnit(value, column) {
  if (column.kind === "boolean" && value !== null) return formatLevel(column, column.values.indexOf(value));
  return column.unit && value !== null ? `${formatValue(value)} ${column.unit}` : formatValue(value);
}

function formatLevel(column, i) {
  const plain = [[false, true], [0, 1]].some((pair) => pair[0] === column.values[0] && pair[1] === column.values[1]);
  return plain ? ["no", "yes"][i] : formatValue(column.values[i]);
}

// ---- places among people --------------------------------------------------------------------------------------------

const findFifth = (column, value) => (column.fifths && value !== null && value !== undefined ? column.fifths.filter((edge) => value >= edge).length : null);

function namePlaces(first, last) {
  const [start, end] = [state.form.fifths[first], state.form.fifths[last]];
  return first === last ? `within ${start}` : `from ${start} to ${end}`;
}

// ---- talking to the service ----------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, refusal) {
    super(refusal.detail);
    this.status = status;
    this.errors = refusal.errors;
  }
}

const running = {};

async function ask(path, body) {
  running[path]?.abort(); // what was asked before is not wanted any more
  running[path] = new AbortController();
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const response = await fetch(path, { ...options, headers, signal: running[path].signal });
  const answer = await response.json();
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

function complain(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401 && !lockOut()) return;
  byId("trouble").textContent = error instanceof Refused ? toSentence(error.message) : "The service does not answer. Is it still running?";
  byId("trouble").hidden = false;
}

function lockOut() {
  const tried = sessionStorage.getItem("token") !== null;
  sessionStorage.removeItem("token");
  byId("page").hidden = true;
  byId("access").hidden = false;
  byId("token").focus();
  return tried;
}

// ---- the form ------------------------------------------------------------------------------------------------------

function buildField(column, i) {
  const id = `f${i}`;
  const field = { column, ...(column.kind === "numeric" ? makeNumberControl(column, id) : makeLevelControl(column, id)) };
  const never = column.mutability === "none";
  field.fixed = make("input", { type: "checkbox", id: `${id}-fixed`, checked: never, disabled: never });
  field.error = make("span", { class: "error", id: `${id}-error` });
  field.hint = make("span", { class: "hint", id: `${id}-hint` });
  const limits = never ? null : makeLimitControl(field, id);
  const unit = column.unit ? make("span", { class: "unit" }, ` (${column.unit})`) : "";
  field.node = make(
    "div",
    { class: never ? "field fixed" : "field" },
    make("label", { for: id }, column.name, unit),
    field.shell ?? field.input,
    field.hint,
    field.error,
    make(
      "div",
      { class: "freedom" },
      make("label", { class: "check" }, field.fixed, never ? "Cannot be changed" : "Fixed"),
      ...(limits ? [limits] : []),
    ),
  );
  field.input.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
  field.input.addEventListener("input", () => noteChange(field));
  field.fixed.addEventListener("change", () => noteLimit(field));
  return field;
}

const WAYS = { increase: "can only go up", decrease: "can only go down" };

function makeNumberControl(column, id) {
  const input = make("input", { type: "number", id, step: column.step ?? "any", inputmode: "decimal" });
  return {
    input,
    read: () => (input.value === "" ? undefined : Number(input.value)),
    write: (value) => (input.value = value ?? ""),
    wrong: () => (input.validity.badInput ? "Please type a number." : ""),
  };
}

function makeLevelControl(column, id) {
  if (column.kind === "boolean" && column.missing === "refuse") {
    const input = make("input", { type: "checkbox", id });
    const text = make("span");
    const showText = () => (text.textContent = formatLevel(column, Number(input.checked)));
    input.addEventListener("input", showText);
    const write = (value) => { input.checked = value === column.values[1]; showText(); };
    const shell = make("div", { class: "tick" }, make("label", { class: "check" }, input, text));
    return { input, shell, read: () => column.values[Number(input.checked)], write, wrong: () => "" };
  }
  const levels = column.kind === "boolean" ? column.values : column.levels;
  const input = make("select", { id });
  levels.forEach((level, i) => {
    input.append(make("option", { value: i }, column.kind === "boolean" ? formatLevel(column, i) : formatValue(level)));
  });
  if (column.missing !== "refuse") input.append(make("option", { value: "" }, "unknown"));
  const write = (value) => (input.value = value === null || value === undefined ? "" : levels.indexOf(value));
  return { input, read: () => (input.value === "" ? null : levels[Number(input.value)]), write, wrong: () => "" };
}

function makeLimitControl(field, id) {
  const { column } = field;
  const box = make("details", {}, make("summary", {}, "Limit"));
  field.limitError = make("span", { class: "error", id: `${id}-limit-error` });
  if (column.kind === "numeric") {
    const [low, high] = ["At least", "At most"].map((text, k) => {
      const input = make("input", { type: "number", id: `${id}-limit-${k}`, step: column.step ?? "any", placeholder: formatBound(column, ["lower", "upper"][k]), "aria-describedby": `${id}-limit-error` });
      input.addEventListener("input", () => noteLimit(field));
      return [input, make("div", {}, make("label", { for: input.id }, text), input)];
    });
    const read = ([input]) => (input.value === "" ? null : Number(input.value));
    field.range = () => (low[0].value === "" && high[0].value === "" ? undefined : [read(low), read(high)]);
    field.limitHint = make("span", { class: "hint" });
    box.append(make("div", { class: "limits" }, low[1], high[1]), field.limitHint);
  } else {
    const ticks = column.labels.map((label, k) => {
      const input = make("input", { type: "checkbox", checked: true, value: label });
      input.addEventListener("change", () => noteLimit(field));
      const text = column.kind === "boolean" ? formatLevel(column, k) : label;
      return [input, make("label", { class: "check" }, input, text)];
    });
    field.range = () => {
      const open = ticks.filter(([input]) => input.checked).map(([input]) => input.value);
      return open.length === ticks.length ? undefined : open;
    };
    box.append(make("div", { class: "limits levels" }, ...ticks.map(([, node]) => node)));
  }
  box.append(field.limitError);
  return box;
}

function show(person) {
  for (const field of state.fields) {
    field.write(person[field.column.name]);
    showHint(field);
  }
  refresh();
}

function showHint(field) {
  const { column } = field;
  const said = [];
  if (column.kind === "numeric") {
    const value = field.read();
    const outside = value !== undefined && (value < column.lower || value > column.upper);
    const span = `${formatBound(column, "lower")} to ${formatBound(column, "upper")}`;
    said.push(outside ? `outside the usual range, ${span}` : span);
    const fifth = findFifth(column, value);
    if (fifth !== null) said.push(`in ${state.form.fifths[fifth]}`);
    if (column.missing !== "refuse") said.push("may be left empty");
  }
  if (WAYS[column.mutability]) said.push(WAYS[column.mutability]);
  if (column.evidence) said.push(column.evidence.replace(/ \(.*\)$/, ""));
  field.hint.textContent = said.join(" · ");
}

function formatBound(column, end) {
  return column.step === null ? new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(column[end]) : formatValue(column[end]);
}

function noteChange(field) {
  byId("example").value = "";
  showHint(field);
  refresh();
}

function noteLimit(field) {
  if (field.limitHint) showLimitHint(field);
  field.node.classList.toggle("fixed", field.fixed.checked);
  outdate();
}

function showLimitHint({ column, limitHint, range }) {
  const [low, high] = range() ?? [null, null];
  const limited = column.fifths && (low !== null || high !== null) && (low ?? column.lower) <= (high ?? column.upper);
  limitHint.textContent = limited ? namePlaces(findFifth(column, low ?? column.lower), findFifth(column, high ?? column.upper)) : "";
}

function readPerson() {
  const entries = state.fields.map((field) => [field.column.name, field.read()]);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

function mark(errors = []) {
  for (const field of state.fields) {
    const mine = errors.filter(({ where }) => where.at(-1) === field.column.name);
    showError(field.input, field.error, field.wrong() || mine.find(({ where }) => where[0] === "rows")?.message);
    if (field.limitError) {
      const message = mine.find(({ where }) => where[0] === "ranges")?.message;
      showError(null, field.limitError, message);
      if (message) field.limitError.closest("details").open = true;
    }
  }
}

function showError(input, place, message) {
  place.textContent = message ? toSentence(message.replace(/^is missing$/, "please fill this in")) : "";
  input?.setAttribute("aria-invalid", Boolean(message));
}

// ---- the decision --------------------------------------------------------------------------------------------------

let later;

function refresh() {
  outdate();
  clearTimeout(later);
  later = setTimeout(decide, 200);
}

const chosenModel = () => document.querySelector('input[name="model"]:checked').value;

async function decide() {
  try {
    const answer = await ask("predict", { rows: [readPerson()], model: chosenModel() });
    byId("trouble").hidden = true;
    if (state.fields.some((field) => field.wrong())) throw new Refused(422, { detail: "", errors: [] });
    mark();
    showDecision(answer.decisions[0]);
  } catch (error) {
    if (error.status !== 422) return complain(error);
    mark(error.errors);
    showDecision(null);
  }
}

const isWanted = (decided) => decided !== null && state.form.target !== null && decided.decision === state.form.target;
const mayAsk = () => state.decision !== null && !isWanted(state.decision);

function showDecision(decided) {
  state.decision = decided;
  byId("ask").disabled = !mayAsk();
  byId("wish").hidden = isWanted(decided);
  byId("content").hidden = !isWanted(decided);
  if (isWanted(decided)) byId("results").hidden = true;
  byId("decision").textContent = decided ? formatValue(decided.decision) : "";
  const chance = decided?.probabilities.find(({ label }) => label === decided.decision).probability;
  byId("sure").textContent = decided ? `${percent(chance)} sure` : "Please correct the marked fields.";
  const needed = state.form.needed[chosenModel()][state.form.classes.indexOf(state.form.target)];
  byId("needed").textContent = needed === undefined ? "" : `${quote(state.form.target)} needs ${percent(needed)}.`;
  const bars = (decided?.probabilities ?? []).flatMap(({ label, probability }) => {
    const bar = make("span");
    bar.style.width = `${100 * probability}%`;
    return [make("dt", {}, formatValue(label)), make("div", { class: "track" }, bar), make("dd", {}, percent(probability))];
  });
  byId("chances").replaceChildren(...bars);
  if (!decided) return;
  const target = byId("target");
  const others = state.form.classes.map((label, i) => [label, i]).filter(([label]) => label !== decided.decision);
  const kept = target.value;
  target.replaceChildren(...others.map(([label, i]) => make("option", { value: i }, formatValue(label))));
  const wanted = String(state.form.classes.indexOf(state.form.target));
  const first = [kept, wanted].find((place) => others.some(([, i]) => String(i) === place));
  if (first !== undefined) target.value = first;
}

// ---- the options ---------------------------------------------------------------------------------------------------

function outdate() {
  byId("results").classList.add("old");
  byId("stale").hidden = false;
}

async function showOptions() {
  if (!mayAsk()) return;
  const button = byId("ask");
  button.disabled = true;
  button.textContent = "Searching…";
  try {
    clearTimeout(later);
    await decide(); // the form may have changed a moment ago
    if (!mayAsk()) return;
    const target = state.form.classes[Number(byId("target").value)];
    const ranges = state.fields.map((field) => [field.column.name, field.range?.()]).filter(([, range]) => range);
    const closed = ranges.filter(([, range]) => !range.length).map(([name]) => name); // nothing left to go to
    const fixed = state.fields.filter((field) => field.fixed.checked).map(({ column }) => column.name);
    const body = {
      rows: [readPerson()],
      model: chosenModel(),
      target,
      options: Math.min(N_OPTIONS, state.form.max_options),
      immutable: [...fixed, ...closed],
      ranges: Object.fromEntries(ranges.filter(([, range]) => range.length)),
      reasons: true,
    };
    const answer = await ask("explain", body);
    showReasons(answer.reasons[0]);
    await showAnswer(answer.explanations[0]);
  } catch (error) {
    if (error.status !== 422) complain(error);
    else if (error.errors.some(({ where }) => ["rows", "ranges"].includes(where[0]))) mark(error.errors);
    else complain(error);
  } finally {
    button.disabled = !mayAsk();
    button.textContent = "Show options";
  }
}

async function showAnswer(answer) {
  const valid = answer.options.filter((option) => option.valid);
  const n = valid.length;
  byId("results").hidden = false;
  byId("results").classList.remove("old");
  byId("stale").hidden = true;
  byId("results-title").textContent = `From ${quote(answer.decision)} to ${quote(answer.target)}`;
  const none = answer.existence === "none exists" ? "There is no way: that is proven for all that may change." : "No way was found.";
  byId("status").textContent = n === 0 ? none : n === 1 ? "One way was found." : `${n} ways were found.`;
  byId("options").replaceChildren(...answer.options.map((option, i) => makeOptionCard(option, i + 1, answer)));
  byId("cost").textContent = `Cost adds up the changes: ${state.form.cost[chosenModel()]}.`;
  if (answer.note && n) byId("status").textContent += " No other way worth telling was found.";
  await drawPicture(answer);
  byId("results-title").focus({ preventScroll: true });
  byId("results").scrollIntoView({ block: "start" });
}

function showReasons(why) {
  byId("why").hidden = !why.reasons.length;
  byId("why-title").textContent = `Why ${quote(why.decision)}`;
  byId("reasons").replaceChildren(...why.reasons.map(makeReasonLine));
  byId("not-reasons").textContent = why.not_reasons.length ? `Would not have changed much: ${why.not_reasons.join(", ")}.` : "";
}

function makeReasonLine(reason) {
  const said = [`+${percent(reason.effect)}`];
  if (reason.suffices) said.push("would do alone");
  if (!reason.changeable) said.push("cannot be changed");
  return make("li", {}, toSentence(reason.text), " ", make("span", { class: "quiet" }, reason.alone ? said.join(" · ") : "counts together with the others"));
}

function makeOptionCard(option, number, answer) {
  const target = quote(answer.target);
  const sure = percent(option.probability);
  const outcome = option.valid ? `${target}, ${sure} sure` : `Closest attempt: ${target} only ${sure}`;
  const facts = [["Cost", option.cost.toFixed(1)], ["How typical", describeTypicality(option.plausibility_percentile, target)]];
  const known = option.changes.length ? facts.filter(([, text]) => text) : [];
  const why = number === 1 && answer.preferred ? `: ${answer.preferred}` : "";
  const kind = answer.options.length > 1 ? [make("p", { class: "kind quiet" }, toSentence(option.kind + why))] : [];
  return make(
    "article",
    { class: option.valid ? "option" : "option attempt" },
    make("header", {}, make("span", { class: "number", "aria-hidden": "true" }, number), make("h3", {}, outcome)),
    ...kind,
    make("ul", { class: "changes" }, ...option.changes.map(makeChangeLine), ...option.consequences.map((change) => makeChangeLine(change, true))),
    ...(option.changes.length ? [] : [make("p", { class: "quiet" }, "Nothing changes.")]),
    make("dl", { class: "facts" }, ...known.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])),
    ...(option.reason ? [make("p", { class: "note reason" }, toSentence(simplify(option.reason)))] : []),
  );
}

const simplify = (reason) =>
  reason.replaceAll("(immutable)", "(fixed)").replace("a counterfactual exists", "there is a way").replace("no counterfactual", "no way");

function makeChangeLine(change, follows = false) {
  const { column } = state.fields.find((field) => field.column.name === change.column);
  return make(
    "li",
    {},
    make("span", { class: "what" }, change.column, ...(follows === true ? [make("span", { class: "before" }, " follows")] : [])),
    make("span", { class: "how" }, make("span", { class: "before" }, withUnit(change.before, { ...column, unit: null })), " → ", make(follows === true ? "span" : "mark", {}, withUnit(change.after, column)), change.in_time ? " in time" : ""),
    ...(change.places ? [make("span", { class: "where" }, namePlaces(...change.places.map((share) => Math.min(Math.floor(5 * share), 4))))] : []),
  );
}

function describeTypicality(percentile, target) {
  if (percentile === null) return null;
  if (percentile <= 50) return `typical of real people who were ${target}`;
  const share = percentile >= 99.5 ? "almost all" : `${Math.round(percentile)} % of`;
  return `${percentile <= 90 ? "somewhat unusual" : "unusual"}: farther off than ${share} real people who were ${target}`;
}

// ---- the picture ---------------------------------------------------------------------------------------------------

const TALL = 380;
let wide = 640; // as much as there is room for, so that the writing keeps its size
const EDGE = { left: 100, right: 24, top: 16, bottom: 56 };

// Who is shown: real people only where the owner of the service has chosen so.
const nameOne = (label) => (state.form.real_people ? `a real person who was ${quote(label)}` : `a made-up person, with what is usual among those who were ${quote(label)}`);
const nameMany = (label) => (state.form.real_people ? `real people who were ${quote(label)}` : `made-up people like those who were ${quote(label)}`);

async function fetchSample(label) {
  if (!state.samples.has(label)) {
    const n = Math.min(300, state.form.max_sample);
    state.samples.set(label, n ? (await ask(`sample?label=${encodeURIComponent(label)}&n=${n}`)).rows.map((row) => row.values) : []);
  }
  return state.samples.get(label);
}

async function drawPicture(answer) {
  const figure = byId("picture");
  const people = await fetchSample(String(answer.target));
  const weights = new Map();
  for (const option of answer.options) {
    for (const { column, cost } of option.changes) weights.set(column, (weights.get(column) ?? 0) + cost);
  }
  const ranked = [...weights].sort((a, b) => b[1] - a[1]).map(([name]) => state.fields.find((f) => f.column.name === name).column);
  const numeric = ranked.filter((column) => column.kind === "numeric").slice(0, 2);
  figure.hidden = !people.length || !ranked.length;
  if (figure.hidden) return;
  wide = Math.max(300, Math.min(736, figure.clientWidth - 36));
  const spots = [{ label: "now", values: answer.factual }, ...answer.options.map((o, i) => ({ label: String(i + 1), values: o.values }))];
  const svg = numeric.length ? drawScatter(numeric, people, spots) : drawShares(ranked[0], people, spots);
  const text = numeric.length
    ? `Each grey dot is ${nameOne(answer.target)}. The ring is the person now, the numbers are the options.`
    : `How many ${nameMany(answer.target)} have each value, with the person now and the options.`;
  const title = `Among ${nameMany(answer.target)}`;
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}. ${text}`);
  figure.replaceChildren(make("figcaption", {}, make("h3", {}, title), make("p", {}, text)), svg);
}

function makeCanvas() {
  return make("svg:svg", { viewBox: `0 0 ${wide} ${TALL}` });
}

function makeScale(column, people, spots, from, to) {
  const values = [...people, ...spots.map((spot) => spot.values)].map((row) => row[column.name]).filter((v) => v !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const step = niceStep((high - low) / Math.min(6, Math.abs(to - from) / 70));
  low = Math.floor(low / step) * step;
  high = Math.ceil(high / step) * step;
  const ticks = Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => low + i * step);
  return { at: (v) => (v === null ? null : from + ((v - low) / (high - low)) * (to - from)), ticks };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= rough);
}

const nameAxis = (column) => (column.unit ? `${column.name} (${column.unit})` : column.name);

function drawScatter([first, second], people, spots) {
  const svg = makeCanvas();
  const x = makeScale(first, people, spots, EDGE.left, wide - EDGE.right);
  const floor = TALL - EDGE.bottom;
  let written = 0;
  for (const tick of x.ticks) {
    svg.append(make("svg:line", { class: "axis", x1: x.at(tick), x2: x.at(tick), y1: EDGE.top, y2: floor }));
    const text = numbers.format(tick);
    const half = 4 * text.length; // about as wide as it is written
    const middle = Math.min(x.at(tick), wide - half - 2); // the last one must not run over the edge
    if (middle - half < written) continue; // nor any over the one before
    written = middle + half;
    svg.append(make("svg:text", { class: "tick-label", x: middle, y: floor + 18, "text-anchor": "middle" }, text));
  }
  svg.append(make("svg:text", { class: "axis-label", x: (EDGE.left + wide - EDGE.right) / 2, y: TALL - 10, "text-anchor": "middle" }, nameAxis(first)));
  let height = (row, i) => floor - 40 - ((i * 137) % 200); // a strip: people are spread so that they can be told apart
  let level = (i) => floor - 140 + 26 * (i % 2 ? (i + 1) / 2 : -i / 2);
  if (second) {
    const y = makeScale(second, people, spots, floor, EDGE.top);
    for (const tick of y.ticks) {
      svg.append(make("svg:line", { class: "axis", x1: EDGE.left, x2: wide - EDGE.right, y1: y.at(tick), y2: y.at(tick) }));
      svg.append(make("svg:text", { class: "tick-label", x: EDGE.left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, numbers.format(tick)));
    }
    svg.append(make("svg:text", { class: "axis-label", x: 16, y: (EDGE.top + floor) / 2, "text-anchor": "middle", transform: `rotate(-90 16 ${(EDGE.top + floor) / 2})` }, nameAxis(second)));
    height = (row) => y.at(row[second.name]);
    level = (i) => y.at(spots[i].values[second.name]);
  }
  people.forEach((row, i) => {
    const [cx, cy] = [x.at(row[first.name]), height(row, i)];
    if (cx !== null && cy !== null) svg.append(make("svg:circle", { class: "real", cx, cy, r: 3.5 }));
  });
  addSpots(svg, spots, spreadOut(spots.map((spot, i) => [x.at(spot.values[first.name]), level(i)])));
  return svg;
}

function spreadOut(places) {
  // Places that would cover one another are moved a little to the side.
  places.forEach((place, i) => {
    while (places.slice(0, i).some((other) => Math.hypot(other[0] - place[0], other[1] - place[1]) < 19)) place[0] += 5;
  });
  return places;
}

function addSpots(svg, spots, places) {
  const [now, ...others] = places;
  const known = (place) => place[0] !== null && place[1] !== null;
  for (const place of others.filter((one) => known(one) && known(now))) {
    svg.append(make("svg:line", { class: "path", x1: now[0], y1: now[1], x2: place[0], y2: place[1] }));
  }
  if (known(now)) {
    svg.append(make("svg:circle", { class: "now", cx: now[0], cy: now[1], r: 7 }));
    const y = now[1] < 40 ? now[1] + 24 : now[1] - 13;
    const anchor = now[0] < EDGE.left + 16 ? "start" : "middle"; // it must not run over the numbers of the axis
    svg.append(make("svg:text", { class: "now-label", x: now[0] + (anchor === "start" ? 3 : 0), y, "text-anchor": anchor }, "now"));
  }
  others.forEach((place, i) => {
    if (!known(place)) return;
    svg.append(make("svg:circle", { class: "spot", cx: place[0], cy: place[1], r: 10 }));
    svg.append(make("svg:text", { class: "spot-label", x: place[0], y: place[1] + 4.5 }, spots[i + 1].label));
  });
}

const shorten = (text, n) => (text.length > n ? `${text.slice(0, Math.max(3, n - 1))}…` : text);

function drawShares(column, people, spots) {
  const levels = column.kind === "boolean" ? column.values : column.levels;
  const svg = makeCanvas();
  const [tall, full] = [46, wide - 8];
  svg.setAttribute("viewBox", `0 0 ${wide} ${levels.length * tall + 10}`);
  levels.forEach((level, i) => {
    const share = people.filter((row) => row[column.name] === level).length / people.length;
    const y = 8 + i * tall;
    const [now, ...options] = spots.map((spot) => spot.values[column.name] === level);
    const here = options.flatMap((is, k) => (is ? [spots[k + 1].label] : []));
    const named = here.length ? [`${here.length > 1 ? "options" : "option"} ${here.join(", ")}`] : [];
    const said = [percent(share), ...(now ? ["now"] : []), ...named].join(" · ");
    const name = column.kind === "boolean" ? `${column.name}: ${formatLevel(column, i)}` : formatValue(level);
    svg.append(make("svg:text", { class: "axis-label", x: 4, y: y + 12 }, shorten(name, (full - 9 * said.length) / 9)));
    svg.append(make("svg:text", { class: "now-label", x: 4 + full, y: y + 12, "text-anchor": "end" }, said));
    svg.append(make("svg:rect", { class: "share", x: 4, y: y + 18, width: Math.max(2, full * share), height: 14, rx: 3 }));
  });
  return svg;
}

// ---- start ---------------------------------------------------------------------------------------------------------

async function start() {
  try {
    state.form = await ask("schema");
    const examples = state.form.max_sample ? (await ask(`sample?n=${N_EXAMPLES}`)).rows : [];
    byId("access").hidden = true;
    byId("page").hidden = false;
    build(examples);
  } catch (error) {
    complain(error);
  }
}

function build(examples) {
  state.fields = state.form.columns.map(buildField);
  byId("fields").replaceChildren(...state.fields.map((field) => field.node));
  byId("models").hidden = state.form.models.length < 2;
  byId("picker").hidden = !examples.length;
  const { real_people: real, identifying } = state.form;
  byId("made-up").hidden = real && !identifying.length;
  if (identifying.length) byId("made-up").textContent = `Real people; ${identifying.join(", ")}: as is usual in a group of them, so that nobody is known by it.`;
  byId("example").replaceChildren(
    make("option", { value: "", disabled: true }, "own values"),
    ...examples.map(({ label, values }, i) => make("option", { value: i }, `${i + 1}: ${state.form.real_people ? "was" : "like"} ${quote(label)}, ${summarise(values)}`)),
  );
  byId("example").onchange = (event) => show(examples[Number(event.target.value)].values);
  const first = Math.max(0, examples.findIndex(({ label }) => label !== state.form.target)); // who has no need to ask comes later
  byId("example").value = examples.length ? String(first) : "";
  show(examples[first]?.values ?? Object.fromEntries(state.form.columns.map((column) => [column.name, middleValue(column)])));
}

function summarise(values) {
  const some = state.form.columns.slice(0, 3);
  return some.map((column) => `${column.name} ${withUnit(values[column.name], column)}`).join(", ");
}

function middleValue(column) {
  if (column.kind !== "numeric") return (column.levels ?? column.values)[0];
  const step = column.step ?? (column.upper - column.lower) / 100;
  return Number((Math.round((column.lower + column.upper) / 2 / step) * step).toPrecision(8));
}

function fixEverything(fixed) {
  for (const field of state.fields.filter((one) => !one.fixed.disabled)) {
    field.fixed.checked = fixed;
    noteLimit(field);
  }
}

byId("person").addEventListener("submit", (event) => { event.preventDefault(); showOptions(); });
byId("again").addEventListener("click", showOptions);
byId("fix-all").addEventListener("click", () => fixEverything(true));
byId("free-all").addEventListener("click", () => fixEverything(false));
byId("target").addEventListener("change", outdate);
byId("models").addEventListener("change", async () => {
  const shown = !byId("results").hidden;
  await decide();
  if (shown) await showOptions();
});
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  byId("trouble").hidden = true;
  start();
});
start();
