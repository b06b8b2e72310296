"use strict";
// The reader of samples: those packed into the page, or all of a run's folder that a person opens. Text is set as text only.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;
const A_PAGE = 20;

function plain(text) {
  return String(text ?? "").replace(CONTROLS, "\ufffd");
}

function number(value) {
  return value === null || value === undefined ? "—" : Number(value).toPrecision(3);
}

// A line of a sample file as the reader shows it.
function sampleOf(line, place) {
  const verdicts = Object.entries(line.verdicts || {}).map(([name, v]) => ({ name, ...v }));
  const at = line.place || place;
  return {
    ...line, place: at, split: at.startsWith("eval/") ? "held-out" : "training", outcome: line.outcome || "no verdict", verdicts,
    expected: line.answer ?? (line.fields || {}).answer, reasons: verdicts.map((v) => v.reason).filter(Boolean),
  };
}

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  return text.split("\n").filter(Boolean).map((line) => sampleOf(JSON.parse(line)));
}

function marked(text, wanted) {
  const pre = element("pre"), clean = plain(text);
  if (!wanted) { pre.textContent = clean; return pre; }
  let from = 0, lower = clean.toLowerCase();
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    pre.append(clean.slice(from, at), element("mark", clean.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  pre.append(clean.slice(from));
  return pre;
}

function valuesOf(sample) {
  const said = sample.values, turns = sample.turns && sample.turns.length ? sample.turns.length : 1;
  return Array.isArray(said) && said.length === turns && said.every(Number.isFinite) ? said : [];
}

function turnsBox(turns, values, wanted) {
  const box = element("ol", null, "turns");
  for (const [at, turn] of turns.entries()) {
    const item = element("li"), facts = [`${turn.tokens ?? 0} tokens`];
    if (turn.reward) facts.push(`reward ${number(turn.reward)}`);
    if (turn.milestone) facts.push(`milestone ${turn.milestone}`);
    if (turn.valid === false) facts.push("not valid");
    if (turn.advantage !== undefined && turn.advantage !== null) facts.push(`advantage ${number(turn.advantage)}`);
    if (values.length) facts.push(`value before ${number(values[at])}`);
    const reply = marked(turn.observation, wanted);
    reply.className = "observation";
    item.append(element("div", facts.join(" · "), "facts"), marked(turn.text, wanted), reply);
    box.append(item);
  }
  return box;
}

function sampleBox(sample, wanted = "") {
  const box = element("div", null, `sample ${sample.outcome}`), facts = element("div", null, "facts");
  facts.append(element("b", plain(sample.outcome).replace("_", " "), "outcome"), ` reward ${number(sample.reward)} · ${sample.tokens} tokens${sample.truncated ? ", cut off" : ""}`);
  if (sample.advantage !== null && sample.advantage !== undefined) facts.append(` · advantage ${number(sample.advantage)}`);
  const values = valuesOf(sample);
  if (values.length === 1) facts.append(` · value before ${number(values[0])}`);
  facts.append(` · ${plain(sample.place)}`);
  box.append(facts, sample.turns && sample.turns.length ? turnsBox(sample.turns, values, wanted) : marked(sample.completion, wanted));
  const said = sample.verdicts.map((v) => `${v.name}: ${v.outcome}${v.reason ? ` (${v.reason})` : ""}${v.extracted === null || v.extracted === undefined ? "" : `, extracted ${v.extracted}`}${v.detail ? `, ${v.detail}` : ""}`);
  if (sample.expected !== undefined && sample.expected !== null && sample.expected !== "") said.push(`expected ${typeof sample.expected === "string" ? sample.expected : JSON.stringify(sample.expected)}`);
  box.append(element("div", plain(said.join(" · ")), "facts"));
  return box;
}

function groupBox(group, wanted, isOpen) {
  const [first] = group.samples, right = group.all.filter((s) => s.outcome === "right").length, box = element("details", null, "group");
  const bar = element("span", null, "bar");
  for (const sample of group.all) bar.append(element("i", null, sample.outcome.replace(" ", "_")));
  const summary = element("summary");
  summary.append(bar, ` ${first.split === "held-out" ? "held-out " : ""}step ${first.step} · ${plain(first.row)} · ${right} of ${group.all.length} right · ${plain(first.prompt).replace(/\s+/g, " ").slice(-110)}`);
  box.append(summary);
  const fill = () => {
    if (box.children.length > 1) return;
    const list = element("div", null, "samples");
    list.append(...[...group.samples].sort((a, b) => (b.advantage ?? -1e9) - (a.advantage ?? -1e9)).map((s) => sampleBox(s, wanted)));
    box.append(marked(first.prompt, wanted), list);
  };
  box.addEventListener("toggle", fill);
  box.open = isOpen;
  if (isOpen) fill();
  return box;
}

class Reader {
  constructor(place, pack) {
    this.place = place; this.pack = pack; this.samples = []; this.page = 0;
    const control = (tag, name, more = {}) => Object.assign(element(tag, null, `by-${name}`), more, { ariaLabel: name });
    this.search = control("input", "search", { type: "search", placeholder: "search prompts and answers" });
    this.row = control("input", "row", { type: "search", placeholder: "row" });
    this.choices = Object.fromEntries(["split", "outcome", "reason", "step"].map((name) => [name, control("select", name)]));
    this.whole = control("input", "whole", { type: "checkbox", checked: true });
    const whole = element("label", null, "whole");
    whole.append(this.whole, " whole groups");
    this.back = element("button", "previous"); this.next = element("button", "next");
    this.count = element("span", null, "count"); this.view = element("div", null, "groups");
    this.files = control("input", "folder", { type: "file", multiple: true, webkitdirectory: true });
    const open = element("label", "open the run's folder to read all of them ", "open");
    open.append(this.files);
    const filters = element("div", null, "controls"), pager = element("div", null, "controls");
    filters.append(this.search, ...Object.values(this.choices), this.row, whole);
    pager.append(this.back, this.next, this.count);
    if (pack.steps < pack.all_steps) pager.append(open);
    place.append(filters, pager, this.view);
    for (const input of [this.search, this.row, this.whole, ...Object.values(this.choices)]) input.addEventListener("input", () => { this.page = 0; this.show(); });
    this.back.addEventListener("click", () => { this.page -= 1; this.show(); });
    this.next.addEventListener("click", () => { this.page += 1; this.show(); });
    this.files.addEventListener("change", () => this.read([...this.files.files]));
  }

  async start() {
    this.take(this.pack.text ? await unpacked(this.pack.text) : [], `${this.pack.steps} of ${this.pack.all_steps} sample files are on this page`);
    this.place.dataset.ready = "yes";
  }

  async read(files) {
    const found = [];
    this.place.dataset.ready = "no";
    for (const file of files) {
      const match = file.webkitRelativePath.match(/(?:^|\/)((samples|eval)\/step-\d+\.jsonl)$/);
      if (!match) continue;
      (await file.text()).split("\n").forEach((line, i) => line && found.push(sampleOf(JSON.parse(line), `${match[1]}:${i + 1}`)));
      this.count.textContent = `read ${found.length} samples`;
    }
    found.sort((a, b) => a.step - b.step);
    this.take(found, found.length ? "all of this folder" : "no samples/step-….jsonl lies in that folder");
    this.place.dataset.ready = "yes";
  }

  take(samples, said) {
    this.samples = samples; this.said = said; this.page = 0; this.groups = new Map();
    for (const sample of samples) {
      const key = `${sample.split} ${sample.step} ${sample.group} ${sample.row}`;
      this.groups.set(key, [...(this.groups.get(key) || []), sample]);
      sample.text = `${sample.prompt}\n${sample.completion}`.toLowerCase();
    }
    const values = { split: (s) => [s.split], outcome: (s) => [s.outcome], reason: (s) => s.reasons, step: (s) => [s.step] };
    for (const [name, choice] of Object.entries(this.choices)) {
      const counts = new Map();
      for (const sample of samples) for (const value of values[name](sample)) counts.set(value, (counts.get(value) || 0) + 1);
      const all = [...counts].sort((a, b) => (name === "step" ? a[0] - b[0] : b[1] - a[1]));
      choice.replaceChildren(...[["", `any ${name}`], ...all.map(([v, n]) => [v, `${name === "step" ? "step " : ""}${plain(v)} (${n})`])].map(([value, text]) => Object.assign(element("option", text), { value })));
    }
    this.show();
  }

  matches(sample, wanted, row) {
    const { split, outcome, reason, step } = this.choices;
    return (!split.value || sample.split === split.value) && (!outcome.value || sample.outcome === outcome.value) && (!reason.value || sample.reasons.includes(reason.value))
      && (!step.value || String(sample.step) === step.value) && (!row || String(sample.row).toLowerCase().includes(row)) && (!wanted || sample.text.includes(wanted));
  }

  show() {
    const wanted = this.search.value.toLowerCase(), row = this.row.value.toLowerCase(), found = [];
    let count = 0;
    for (const all of this.groups.values()) {
      const hits = all.filter((sample) => this.matches(sample, wanted, row));
      count += hits.length;
      if (hits.length) found.push({ all, samples: this.whole.checked ? all : hits });
    }
    this.page = Math.max(0, Math.min(this.page, Math.ceil(found.length / A_PAGE) - 1));
    const from = this.page * A_PAGE, shown = found.slice(from, from + A_PAGE);
    this.count.textContent = `${count} of ${this.samples.length} samples in ${found.length} groups${found.length > A_PAGE ? `, groups ${from + 1} to ${from + shown.length}` : ""} · ${this.said}`;
    this.back.disabled = from === 0; this.next.disabled = from + A_PAGE >= found.length;
    this.view.replaceChildren(...shown.map((group, i) => groupBox(group, wanted, i === 0)));
  }
}
