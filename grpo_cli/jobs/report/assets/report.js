// The page: when a figure is drawn, the theme, and the completions. Text of models is set through textContent only.
const data = JSON.parse(document.getElementById("data").textContent);
const figures = new Map(data.figures.map((figure) => [figure.id, figure]));
const root = document.documentElement, smooth = document.getElementById("smooth");
const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
const plots = [...document.querySelectorAll(".plot")];

function draw(div) {
  const figure = figures.get(div.dataset.figure), state = `${div.clientWidth} ${smooth.value}`;
  if (!figure || !div.clientWidth || div.dataset.drawn === state) return;
  div.dataset.drawn = state;
  drawFigure(div, figure, data.axes, smooth.value);
}

const again = () => plots.filter((div) => div.dataset.drawn).forEach(draw);
const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && draw(entry.target)), { rootMargin: "600px" });
plots.forEach((div) => watcher.observe(div));
window.addEventListener("resize", again);
smooth.addEventListener("change", again);
window.addEventListener("beforeprint", () => { setTheme("light"); plots.forEach(draw); });

function setTheme(name) {
  root.dataset.theme = name;
}

setTheme(wantsDark.matches ? "dark" : "light");
wantsDark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));

const thumbnails = (images) => (images || []).map((address) => {
  const image = element("img");
  image.src = address;
  image.alt = "an image of the row";
  return image;
});

for (const place of document.querySelectorAll(".browser")) {
  const prompts = data.readings[Number(place.dataset.browser)].prompts;
  const controls = element("div", null, "controls"), choice = element("select"), view = element("div");
  choice.setAttribute("aria-label", "prompt");
  prompts.forEach((prompt, i) => {
    const option = element("option", `${i + 1}. ${prompt.change} · ${prompt.prompt.replace(/\s+/g, " ").slice(-70)}`);
    option.value = i;
    choice.append(option);
  });
  const show = (i) => {
    choice.value = i;
    const prompt = prompts[i], moments = element("div", null, "moments");
    for (const moment of prompt.moments) {
      const column = element("div", null, "moment");
      column.append(element("b", `step ${moment.step} · ${moment.rate === null ? "no verdict" : `${Math.round(100 * moment.rate)}% right`}`), ...moment.samples.map((line) => sampleBox(sampleOf(line))));
      moments.append(column);
    }
    view.replaceChildren(...thumbnails(prompt.images), element("pre", prompt.prompt), element("p", `expected ${prompt.expected} · ${prompt.change}`, "note"), moments);
  };
  const step = (by) => () => show((Number(choice.value) + by + prompts.length) % prompts.length);
  const back = element("button", "previous"), next = element("button", "next");
  back.addEventListener("click", step(-1));
  next.addEventListener("click", step(1));
  choice.addEventListener("change", () => show(Number(choice.value)));
  controls.append(back, next, choice);
  place.append(controls, view);
  show(0);
}

for (const place of document.querySelectorAll(".surprises")) {
  const kinds = new Map();
  for (const sample of data.readings[Number(place.dataset.surprises)].surprises) kinds.set(sample.kind, [...(kinds.get(sample.kind) || []), sample]);
  for (const [kind, samples] of kinds) {
    const details = element("details");
    details.append(element("summary", `${kind} (${samples.length})`));
    for (const sample of samples) details.append(element("p", `step ${sample.step} · ${sample.prompt.replace(/\s+/g, " ").slice(-200)}`, "note"), ...thumbnails(sample.images), sampleBox(sampleOf(sample)));
    place.append(details);
  }
}

const readers = [...document.querySelectorAll(".reader")].map((place) => new Reader(place, data.packs[Number(place.dataset.reader)]).start());
Promise.all(readers).then(() => { document.body.dataset.ready = "yes"; });
