"use strict";
// Draws the figures of the page as SVG: lines, bands, layers, bars and heatmaps in panels. A legend of buttons stands above
// them, what lies under the pointer is told below them. Names are set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 54, right: 12, top: 10, bottom: 22 };
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "7 3 2 3" };
const CIVIDIS = [[0, 34, 78], [54, 83, 124], [124, 123, 120], [187, 173, 108], [254, 232, 56]];
const DENSE = 120; // curves of more points than this are smoothed where the reader leaves it to the page

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function shape(parent, tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function short(value) {
  if (value === null || value === undefined) return "—";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size >= 10000) return `${Number((value / 1000).toPrecision(3))}k`;
  return size > 0 && size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

function ticksOf(low, high, most, log) {
  if (log) {
    const found = [];
    for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) found.push(power);
    const every = Math.ceil(found.length / most) || 1;
    return found.length > 1 ? found.filter((_, i) => i % every === 0) : [low, high];
  }
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 5, 10].map((factor) => factor * power), fits = steps.findIndex((step) => step >= rough);
  const wide = multiplesOf(steps[fits], low, high);
  return wide.length < 3 && fits > 0 ? multiplesOf(steps[fits - 1], low, high) : wide; // a single tick says no scale
}

function multiplesOf(step, low, high) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

// Centred mean over `size` points, with the 10 to 90 % range in it; gaps count for nothing.
function smoothed(values, size) {
  const out = { mean: [], low: [], high: [] }, side = Math.floor(size / 2);
  values.forEach((value, i) => {
    const known = values.slice(Math.max(0, i - side), i + side + 1).filter((v) => v !== null).sort((a, b) => a - b);
    const none = value === null || known.length === 0;
    out.mean.push(none ? null : known.reduce((a, b) => a + b, 0) / known.length);
    out.low.push(none ? null : known[Math.floor(0.1 * (known.length - 1))]);
    out.high.push(none ? null : known[Math.ceil(0.9 * (known.length - 1))]);
  });
  return out;
}

function windowOf(x, choice) {
  if (choice === "off" || x.length < 8) return 1;
  if (choice === "auto") return x.length > DENSE ? Math.round(x.length / 40) : 1;
  const gap = (x[x.length - 1] - x[0]) / (x.length - 1) || 1;
  return Math.max(1, Math.round(Number(choice) / gap));
}

// What a panel draws: every trace with its own x values and the curves between which it lies.
function layersOf(traces, axes, choice) {
  const tops = new Map(), stacked = traces.some((trace) => trace.type === "area");
  return traces.map((trace) => {
    const x = axes[trace.x], color = trace.line ? (trace.line.color === "#222222" ? "var(--fg)" : trace.line.color) : null;
    if (trace.type === "band") return { ...trace, x, color };
    if (trace.type === "heat" || trace.type === "bar") return { ...trace, x, color };
    const size = (trace.mode || "").includes("markers") ? 1 : windowOf(x, choice), found = size > 1 ? smoothed(trace.y, size) : null, y = found ? found.mean : trace.y;
    if (trace.type === "line") return { ...trace, x, y, raw: trace.y, color, low: found && !stacked && found.low, high: found && !stacked && found.high }; // a band would change the colours of areas below it
    const floor = x.map((at) => tops.get(at) || 0);
    const top = x.map((at, i) => floor[i] + (y[i] || 0));
    x.forEach((at, i) => tops.set(at, top[i]));
    return { ...trace, x, y: top, raw: trace.y, floor, color };
  });
}

function rangeOf(values, panel) {
  const known = values.filter((v) => v !== null && Number.isFinite(v) && (!panel.log || v > 0)).map((v) => (panel.log ? Math.log10(v) : v));
  if (!known.length) return [0, 1];
  let low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  if (panel.from_zero || panel.share) low = Math.min(low, 0);
  if (panel.share && high > 0.6) high = Math.max(high, 1);
  if (high - low < 1e-12) [low, high] = [low === 0 ? 0 : low - Math.abs(low) * 0.1, high + (Math.abs(high) * 0.1 || 1)];
  const room = panel.share ? 0 : (high - low) * 0.04;
  return [low === 0 ? 0 : low - room, high + room];
}

function pathOf(x, y, atX, atY) {
  let path = "", pen = false;
  x.forEach((value, i) => {
    const at = y[i] === null || y[i] === undefined ? NaN : atY(y[i]);
    if (!Number.isFinite(at)) { pen = false; return; }
    path += `${pen ? "L" : "M"}${atX(value).toFixed(1)} ${at.toFixed(1)}`;
    pen = true;
  });
  return path;
}

function areaOf(x, low, high, atX, atY) {
  const parts = [];
  let part = [];
  x.forEach((value, i) => {
    if (low[i] === null || high[i] === null) { if (part.length) parts.push(part); part = []; } else part.push(i);
  });
  if (part.length) parts.push(part);
  return parts.map((indices) => {
    const there = indices.map((i) => `${atX(x[i]).toFixed(1)} ${atY(high[i]).toFixed(1)}`);
    const back = indices.map((i) => `${atX(x[i]).toFixed(1)} ${atY(low[i]).toFixed(1)}`).reverse();
    return `M${there.join("L")}L${back.join("L")}Z`;
  }).join("");
}

function colourOf(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1), i = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return `rgb(${CIVIDIS[i].map((from, c) => Math.round(from + (CIVIDIS[i + 1][c] - from) * (at - i))).join(",")})`;
}

function frame(svg, box, yTicks, xTicks, atX, atY) {
  for (const tick of yTicks) {
    shape(svg, "line", { x1: box.left, x2: box.right, y1: atY(tick.at), y2: atY(tick.at), class: "grid" });
    shape(svg, "text", { x: box.left - 6, y: atY(tick.at) + 4, "text-anchor": "end" }, tick.text);
  }
  xTicks.forEach((tick, i) => shape(svg, "text", { x: atX(tick.at), y: box.bottom + 15, "text-anchor": i === xTicks.length - 1 && xTicks.length > 1 ? "end" : "middle" }, tick.text));
}

function drawHeat(svg, layer, box) {
  const wide = (box.right - box.left) / layer.x.length, tall = (box.bottom - box.top) / layer.names.length;
  const top = layer.top || Math.max(...layer.z.flat().filter((v) => v !== null), 1e-9), few = layer.names.length <= 17;
  const atRow = (row) => (few ? box.bottom - (row + 1) * tall : box.top + row * tall);
  layer.z.forEach((row, j) => row.forEach((value, i) => {
    if (value !== null) shape(svg, "rect", { x: box.left + i * wide, y: atRow(j), width: wide + 0.4, height: tall + 0.4, fill: colourOf(value / top) });
  }));
  if (few) layer.names.forEach((name, j) => shape(svg, "text", { x: box.left - 6, y: atRow(j) + tall / 2 + 4, "text-anchor": "end" }, name.slice(0, 6)));
  const every = Math.ceil(layer.x.length / Math.max(2, Math.floor((box.right - box.left) / 80)));
  layer.x.forEach((name, i) => i % every === 0 && shape(svg, "text", { x: box.left + (i + 0.5) * wide, y: box.bottom + 15, "text-anchor": "middle" }, name));
  return (px, py) => {
    const i = Math.floor((px - box.left) / wide), j = layer.names.findIndex((_, row) => py >= atRow(row) && py < atRow(row) + tall);
    return j < 0 || !layer.z[j] || layer.z[j][i] === undefined ? null : `${layer.names[j]} · ${layer.x[i]} · ${short(layer.z[j][i])}`;
  };
}

function drawBars(svg, layers, panel, box) {
  const names = layers[0].x, [low, high] = rangeOf(layers.flatMap((l) => l.y), panel), slot = (box.right - box.left) / names.length;
  const atY = (v) => box.bottom - ((v - low) / (high - low)) * (box.bottom - box.top), atX = (i) => box.left + (i + 0.5) * slot;
  const every = Math.ceil(names.length / Math.max(2, Math.floor((box.right - box.left) / 34)));
  const labels = names.map((text, at) => ({ text, at })).filter((tick) => tick.at % every === 0);
  frame(svg, box, ticksOf(low, high, 4).map((at) => ({ at, text: short(at) })), labels, atX, atY);
  const wide = (0.8 * slot) / layers.length;
  layers.forEach((layer, k) => layer.y.forEach((value, i) => value !== null && shape(svg, "rect", { x: atX(i) - 0.4 * slot + k * wide, y: atY(value), width: wide, height: Math.max(0, box.bottom - atY(value)), fill: layer.color })));
  return (px) => {
    const i = Math.floor((px - box.left) / slot);
    return names[i] === undefined ? null : `${names[i]} · ${layers.map((l) => `${l.name} ${short(l.y[i])}`).join(" · ")}`;
  };
}

function drawCurves(svg, layers, panel, box) {
  const xs = layers.flatMap((l) => [l.x[0], l.x[l.x.length - 1]]).filter((v) => v !== undefined);
  const first = Math.min(...xs), last = Math.max(...xs);
  const edges = layers.flatMap((l) => (l.type === "band" ? [...l.low, ...l.high] : [...l.y, ...(l.low || []), ...(l.high || [])]));
  const [low, high] = rangeOf(panel.cap && !panel.log ? [...edges, panel.cap] : edges, panel);
  const atX = (v) => box.left + ((v - first) / (last - first || 1)) * (box.right - box.left);
  const atY = (v) => box.bottom - (((panel.log ? Math.log10(v) : v) - low) / (high - low)) * (box.bottom - box.top);
  const yTicks = ticksOf(low, high, 4, panel.log).map((v) => ({ at: panel.log ? 10 ** v : v, text: panel.share ? `${Math.round(100 * v)}%` : short(panel.log ? 10 ** v : v) }));
  const xTicks = (last > first ? ticksOf(first, last, Math.max(2, Math.floor((box.right - box.left) / 90))) : [first]).map((at) => ({ at, text: short(at) }));
  frame(svg, box, yTicks, xTicks, atX, atY);
  if (panel.cap) shape(svg, "line", { x1: box.left, x2: box.right, y1: atY(panel.cap), y2: atY(panel.cap), class: "cap" });
  for (const layer of layers) {
    if (layer.type === "area") shape(svg, "path", { d: areaOf(layer.x, layer.floor, layer.y, atX, atY), fill: layer.color, "fill-opacity": 0.85 });
    if (layer.low && layer.high) shape(svg, "path", { d: areaOf(layer.x, layer.low, layer.high, atX, atY), fill: layer.color, "fill-opacity": layer.type === "band" ? 0.18 : 0.22 });
    if (layer.type !== "line") continue;
    shape(svg, "path", { d: pathOf(layer.x, layer.y, atX, atY), fill: "none", stroke: layer.color, "stroke-width": layer.line.width || 1.6, "stroke-opacity": layer.line.width < 1 ? 0.6 : 1, "stroke-dasharray": DASHES[layer.line.dash] || "none", "stroke-linejoin": "round" });
    const has = (i) => layer.y[i] !== null && layer.y[i] !== undefined, dots = (layer.mode || "").includes("markers") && !(layer.line.width < 1); // of thin seeds only their mean has dots
    // a point between two gaps is on no line: without a dot it would not be seen
    layer.x.forEach((v, i) => has(i) && (dots || !(has(i - 1) || has(i + 1))) && shape(svg, "circle", { cx: atX(v), cy: atY(layer.y[i]), r: 2.4, fill: layer.color }));
  }
  const mark = shape(svg, "line", { y1: box.top, y2: box.bottom, x1: -9, x2: -9, class: "mark" });
  return (px) => {
    const at = first + ((px - box.left) / (box.right - box.left)) * (last - first), said = [];
    let near = null;
    for (const layer of layers) for (const v of layer.x) if (near === null || Math.abs(v - at) < Math.abs(near - at)) near = v;
    if (near === null) return null;
    mark.setAttribute("x1", atX(near)); mark.setAttribute("x2", atX(near));
    for (const layer of layers) {
      const i = layer.x.indexOf(near);
      if (i < 0) continue;
      said.push(layer.type === "band" ? `${layer.name} ${short(layer.low[i])} to ${short(layer.high[i])}` : `${layer.name} ${short(layer.raw[i])}${layer.type === "line" && layer.y !== layer.raw ? ` (around ${short(layer.y[i])})` : ""}`);
    }
    return `${panel.x || "step"} ${near} · ${said.join(" · ")}`;
  };
}

function drawPanel(panel, layers, width, told) {
  const place = element("div", null, panel.half ? "panel half" : "panel");
  place.append(element("div", [panel.title, panel.y].filter(Boolean).join(" · "), "axis"));
  const svg = shape(place, "svg", { width, height: panel.height, viewBox: `0 0 ${width} ${panel.height}` });
  const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: panel.height - MARGIN.bottom };
  if (!layers.length) return place;
  const draw = layers[0].type === "heat" ? (s, l, _, b) => drawHeat(s, l[0], b) : layers[0].type === "bar" ? drawBars : drawCurves;
  const tell = draw(svg, layers, panel, box);
  svg.addEventListener("pointermove", (event) => {
    const edge = svg.getBoundingClientRect();
    told.textContent = tell(event.clientX - edge.left, event.clientY - edge.top) || "\u00a0";
  });
  if (panel.x) place.append(element("div", panel.x, "axis below"));
  return place;
}

function drawFigure(div, figure, axes, choice) {
  const hidden = div.hiddenNames || (div.hiddenNames = new Set());
  div.data = figure.traces.map((trace) => ({ ...trace, x: axes[trace.x] }));
  const width = div.clientWidth, halves = width >= 640, legend = element("div", null, "legend"), panels = element("div", null, "panels"), told = element("div", "\u00a0", "told");
  // a panel's title names what is alone in it
  const lone = (t) => figure.panels.length > 1 && figure.traces.filter((other) => (other.panel || 0) === (t.panel || 0)).length === 1;
  const names = new Map(figure.traces.filter((t) => t.type !== "heat" && !lone(t)).map((t) => [t.name, t]));
  if (names.size > 1) for (const [name, trace] of names) {
    const key = element("button", null, "key"), sign = element("i", null, trace.type === "line" ? `line ${trace.line.dash || "solid"}` : "area");
    sign.style.color = trace.line.color === "#222222" ? "var(--fg)" : trace.line.color;
    if (trace.type === "line" && trace.line.width < 1) sign.style.borderTopWidth = "1px";
    key.type = "button";
    key.setAttribute("aria-pressed", String(!hidden.has(name)));
    key.append(sign, name);
    key.addEventListener("click", () => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); drawFigure(div, figure, axes, choice); });
    legend.append(key);
  }
  figure.panels.forEach((panel, i) => {
    const own = figure.traces.filter((trace) => (trace.panel || 0) === i && !hidden.has(trace.name));
    panels.append(drawPanel(panel, layersOf(own, axes, choice), panel.half && halves ? Math.floor((width - 16) / 2) : width, told));
  });
  div.replaceChildren(legend, panels, told);
}
