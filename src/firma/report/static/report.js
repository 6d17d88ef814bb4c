// The page of a report: keeps what was chosen, and draws it from the data in the page. Texts are only ever put in as text.
"use strict";
(() => {
  const {Curves, HeatMap, el, colour, dash, short, sample} = FirmaCharts;
  const {by, throttled, duration, several, facts, copyButton} = FirmaPage;
  const MOST_LINES = 10, MOST_CHARTS = 12, MOST_ROWS = 50;
  const SWITCH = 0, PLACE = 1, VARIANT = 2, COMMAND = 3, SETTINGS = 4, VALUES = 5, REFERENCES = 6;  // in a group
  const GROUP = 0, SEED = 1, SECONDS = 2, CLIENTS = 3, ROUNDS = 4, VERSIONS = 5, SCORES = 6;  // in a run
  const SIGNS = ["", "≈ ", "★ "];
  const data = JSON.parse(by("data").textContent), all = document.querySelectorAll.bind(document);
  document.documentElement.classList.add("js");

  // Tables that are drawn when they are opened, and any table whose header sorts it.
  function sortable(table) {
    for (const button of table.querySelectorAll("thead button")) button.addEventListener("click", () => {
      const header = button.parentElement, column = header.cellIndex, down = header.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      const worth = row => row.cells[column].dataset.value === undefined ? null : Number(row.cells[column].dataset.value);
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((one, other) => {
        const a = worth(one), b = worth(other);
        if (a !== null && b !== null) return down * (a - b);
        if (a !== null || b !== null) return a === null ? 1 : -1;
        return -down * one.cells[column].textContent.localeCompare(other.cells[column].textContent, "en", {numeric: true});
      }));
    });
    return table;
  }
  const header = (name, number) => el("th", {scope: "col", class: number ? "number" : null}, el("button", {type: "button", class: "sort"}, name));
  function fold(node) {
    const table = data.tables[Number(node.dataset.table)], numbers = table.columns.map((_, k) => table.rows.some(row => Array.isArray(row[k])));
    const rows = table.rows.map(row => el("tr", {}, row.map((cell, k) => Array.isArray(cell)
      ? el("td", {class: cell[2] ? "number best" : "number", "data-value": cell[1]}, cell[0]) : el("td", {class: numbers[k] ? "number" : null}, cell))));
    const drawn = el("table", {}, el("thead", {}, el("tr", {}, table.columns.map((name, k) => header(name, numbers[k])))), el("tbody", {}, rows));
    node.append(el("div", {class: "scroll wide", tabindex: 0, role: "region", "aria-label": table.title}, sortable(drawn)), table.note ? el("p", {class: "quiet"}, table.note) : "");
  }
  for (const node of all("details.table")) {
    const open = () => { if (node.open && !node.dataset.drawn) { node.dataset.drawn = "yes"; fold(node); } };
    node.addEventListener("toggle", open);
    open();
  }

  // Statements: those of the chosen verdict and words; each shows what is found with the chosen preset.
  function drawStatements(source) {
    const wanted = by("verdict") ? by("verdict").value : "", words = by("claim") ? by("claim").value.toLowerCase() : "";
    let shown = 0, count = 0;
    for (const node of all("details.statement")) {
      const found = [...node.querySelectorAll("summary .verdict")], own = found.find(each => each.dataset.source === source) || found[0];
      for (const each of found) each.hidden = each !== own;
      node.hidden = (wanted && own.dataset.verdict !== wanted) || !node.textContent.toLowerCase().includes(words);
      count += 1; shown += node.hidden ? 0 : 1;
    }
    if (by("judged")) by("judged").textContent = `${shown} of ${count} shown${source ? `, as judged on ${source}` : ""}`;
    if (wanted || words) for (const node of all("details.fold")) if (node.querySelector("details.statement:not([hidden])")) node.open = true;
  }
  if (!data.groups) { drawStatements(""); return; }

  const state = {s: 0, m: 0, filters: {}, words: "", aside: false};
  const hidden = new Set(data.variants.map((_, k) => k).filter(k => k >= MOST_LINES && !data.aside.includes(k)));
  const index = new Map(data.groups.map((group, k) => [group.slice(0, 3).join(), k]));
  const runsOf = data.groups.map(() => []);
  for (const run of data.runs) runsOf[run[GROUP]].push(run);
  const at = (place, variant) => { const k = index.get([state.s, place, variant].join()); return k === undefined ? null : data.groups[k]; };
  const stat = group => group && group[VALUES][state.m] || null;
  const measure = () => data.measures[state.m];
  const fixed = value => value.toFixed(measure().digits);

  function places() {
    const there = new Set(data.groups.filter(group => group[SWITCH] === state.s).map(group => group[PLACE]));
    return data.places.map((_, k) => k).filter(k => there.has(k) && Object.entries(state.filters).every(([name, value]) => !value || data.places[k][2][name] === value));
  }
  function variants() {
    const there = new Set(data.groups.filter(group => group[SWITCH] === state.s).map(group => group[VARIANT])), words = state.words.toLowerCase();
    const found = data.variants.map((_, k) => k).filter(k => there.has(k) && data.variants[k].toLowerCase().includes(words));
    const kept = found.filter(k => state.aside || !data.aside.includes(k));
    return kept.length ? kept : found;
  }
  function best(place) {
    const known = data.variants.map((_, k) => k).filter(k => !data.aside.includes(k)).map(k => stat(at(place, k))).filter(Boolean).map(each => each[0]);
    return known.length > 1 ? known.reduce((a, b) => measure().lower ? Math.min(a, b) : Math.max(a, b)) : null;
  }
  function level(distance) {
    const steps = data.bounds[state.s][state.m], found = steps.findIndex(step => distance <= step);
    return found < 0 ? steps.length : found;
  }
  // How far from the best a value is, in a class; better than the best is one of those that are set aside.
  const near = (value, top) => top === null ? "" : ` n${(measure().lower ? value < top : value > top) ? 0 : level(Math.abs(value - top))}`;
  const described = (group, value, top) => `${data.variants[group[VARIANT]]}, ${data.places[group[PLACE]].slice(0, 2).join(", ")}: ${fixed(value[0])}`
    + `${value[1] === null ? "" : ` ± ${fixed(value[1])}`}, ${several(runsOf[data.groups.indexOf(group)].length, "seed")}${top === null || value[0] === top ? "" : `, ${fixed(Math.abs(value[0] - top))} from the best`}`;

  function drawWins(shown, columns) {
    const count = new Map(columns.map(k => [k, 0])), body = [];
    let dataset = null;
    for (const place of shown) {
      if (data.places[place][0] !== dataset) {
        dataset = data.places[place][0];
        body.push(el("tr", {class: "group"}, el("th", {scope: "rowgroup", colspan: columns.length + 1}, dataset)));
      }
      const top = best(place);
      body.push(el("tr", {}, el("th", {scope: "row"}, data.places[place][1]), columns.map(k => {
        const group = at(place, k), value = stat(group);
        if (!value) return el("td", {class: "number none"}, "—");
        if (value[2] === 2) count.set(k, count.get(k) + 1);
        return el("td", {class: `number${near(value[0], top)}${value[2] === 2 ? " best" : ""}`, title: described(group, value, top)}, SIGNS[value[2]] + fixed(value[0]));
      })));
    }
    by("wins").replaceChildren(el("caption", {}, measure().heading + (data.switch.length > 1 ? `, ${data.switch[state.s]}` : "")),
      el("thead", {}, el("tr", {}, el("th", {scope: "col"}, "place"), columns.map(k => el("th", {scope: "col", class: "number"}, data.variants[k]))),
        data.variants.length > 1 ? el("tr", {class: "total"}, el("th", {scope: "row"}, "★ best in"), columns.map(k => el("td", {class: "number"}, String(count.get(k))))) : null),
      el("tbody", {}, body));
  }
  function drawKey() {
    if (data.variants.length < 2) return;
    const steps = data.bounds[state.s][state.m], unit = measure().heading.endsWith(" in %"), mark = (k, text) => el("span", {class: "nowrap"}, el("i", {class: `swatch n${k}`}), text);
    const parts = steps.flatMap((step, k) => [mark(k, `at most ${step},`), " "]);
    by("key").replaceChildren(`${measure().marks}; — not run.`,
      ...(steps.length ? [" Distance to the best: ", ...parts, mark(steps.length, `more than ${steps[steps.length - 1]}${unit ? " points" : ""}.`)] : []));
  }
  function drawAnswer() {
    const list = (node, texts) => { if (node) node.replaceChildren(...texts.map(text => el("li", {}, text))); };
    list(by("answer"), data.answers[state.s][state.m]);
    list(by("findings"), data.findings[data.switch[state.s]] || []);
    by("about").textContent = `${data.switch.length > 1 ? `${data.switch[state.s]}, ` : ""}${measure().heading}`;
  }

  // Scores of a run after each round: of the mean, of the worst, or of another figure over its clients.
  const mean = list => list.reduce((a, b) => a + b, 0) / list.length;
  const OVER_CLIENTS = {
    worst_client: list => list.reduce((a, b) => Math.min(a, b)),
    worst_fifth: list => mean(list.slice().sort((a, b) => a - b).slice(0, Math.max(1, Math.floor(list.length / 5)))),
    gini: list => {
      const sorted = list.map(each => Math.max(0, Math.min(1e4, each))).sort((a, b) => a - b), sum = sorted.reduce((a, b) => a + b, 0);
      return sum > 0 ? 1e4 * Math.max(0, sorted.reduce((part, each, k) => part + (2 * (k + 1) - sorted.length - 1) * each, 0) / (sorted.length * sum)) : 0;
    },
  };
  const drawnAs = () => (measure().name in OVER_CLIENTS && (data.whole || measure().name === "worst_client") ? measure().name : "mean");
  function curve(run, name) {
    const scores = run[SCORES], each = data.whole ? run[CLIENTS] : 2, found = [];
    for (let from = 0; from < scores.length; from += each) {
      const row = scores.slice(from, from + each);
      const value = row.includes(null) ? NaN : !data.whole ? row[name === "mean" ? 0 : 1] : (OVER_CLIENTS[name] || mean)(row);
      found.push(value / (data.percent && name !== "gini" ? 100 : 1e4));
    }
    return found;
  }
  const rounds = run => data.kept[run[ROUNDS]] || Array.from({length: run[ROUNDS]}, (_, k) => k + 1);
  function series(group, k) {
    const lines = runsOf[k].map(run => curve(run, drawnAs())), length = Math.min(...lines.map(line => line.length)), y = [], low = [], high = [];
    for (let round = 0; round < length; round++) {
      const here = lines.map(line => line[round]), middle = mean(here);
      const spread = here.length > 1 ? Math.sqrt(here.reduce((sum, each) => sum + (each - middle) ** 2, 0) / (here.length - 1)) : 0;
      y.push(middle); low.push(middle - spread); high.push(middle + spread);
    }
    const place = group[VARIANT], x = rounds(runsOf[k][0]).slice(0, length);
    return {name: data.variants[place], colour: colour(place), dash: dash(place), x, y, ...(lines.length > 1 ? {low, high} : {})};
  }
  const curveTitle = () => ({mean: `Mean ${data.main}`, gini: "Gini coefficient of the clients"}[drawnAs()] || data.measures.find(each => each.name === drawnAs()).title.replace(/^./, sign => sign.toUpperCase()))
    + (data.percent && drawnAs() !== "gini" ? " in %" : "");

  // One chart for each place of a data set, drawn when it comes into view.
  const charts = new Map(), seen = new IntersectionObserver(entries => {
    for (const entry of entries) { const chart = charts.get(entry.target); chart.visible = entry.isIntersecting; if (chart.visible) chart.draw(); }
  }, {rootMargin: "300px"});
  function chartOf(place) {
    const name = el("figcaption", {}, `${data.places[place][0]}, ${data.places[place][1]}`), frame = el("div", {class: "frame"}), figure = el("figure", {}, name, frame);
    const own = {dirty: true, visible: false, figure, draw: () => {
      if (!own.dirty || !figure.isConnected) return;
      own.dirty = false;
      own.chart = own.chart || new Curves(frame, `${data.places[place][0]}, ${data.places[place][1]}`);
      const lines = variants().filter(k => !hidden.has(k)).map(k => index.get([state.s, place, k].join())).filter(k => k !== undefined);
      own.chart.draw({series: lines.map(k => series(data.groups[k], k)), yLabel: curveTitle(), height: 230, ends: true});
    }};
    charts.set(figure, own);
    seen.observe(figure);
    return own;
  }
  const perPlace = new Map();
  const more = new Set();
  function drawDataset(section, shown, columns) {
    const number = Number(section.dataset.place), dataset = data.datasets[number], here = shown.filter(k => data.places[k][0] === dataset);
    section.closest("section").hidden = !here.length;
    if (!here.length) return;
    section.querySelector(".said").textContent = data.said[state.s][state.m][number];
    const there = columns.filter(k => here.some(place => at(place, k)));
    const rows = there.map(k => el("tr", {}, el("th", {scope: "row"}, sample(colour(k), dash(k)), " ", data.variants[k]), here.map(place => {
      const group = at(place, k), value = stat(group), other = group && group[REFERENCES] ? group[REFERENCES][state.m] : null;
      const beside = other === null ? [] : [" ", el("span", {class: "beside"}, `(${fixed(other)})`)];
      if (!value) return el("td", {class: "number none"}, "—", ...beside);
      return el("td", {class: `number${near(value[0], best(place))}${value[2] === 2 ? " best" : ""}`, "data-value": value[0]},
        SIGNS[value[2]] + fixed(value[0]), el("span", {class: "spread"}, value[1] === null ? "" : ` ± ${fixed(value[1])}`), ...beside);
    })));
    const table = section.querySelector("table");
    table.replaceChildren(el("caption", {}, `${measure().heading}${data.switch.length > 1 ? `, ${data.switch[state.s]}` : ""}`),
      el("thead", {}, el("tr", {}, header(data.lines), here.map(place => header(data.places[place][1], true)))), el("tbody", {}, rows));
    sortable(table);
    const seeds = new Set(here.flatMap(place => columns.map(k => index.get([state.s, place, k].join()))).filter(k => k !== undefined).map(k => runsOf[k].length));
    section.querySelector(".under").textContent = `${Math.max(...seeds) > 1 ? `Mean ± standard deviation over seeds (${[...seeds].sort((a, b) => a - b).join(", ")} of them).` : "One seed each."}${data.reference && data.groups.some(group => group[REFERENCES] && group[REFERENCES][state.m] !== null) ? ` ${data.reference}` : ""}`;
    section.querySelector(".title").textContent = `${curveTitle()} over rounds${[...seeds].some(each => each > 1) ? "; a band is one standard deviation over seeds" : ""}`;
    section.querySelector(".legend").replaceChildren(...there.map(k => el("li", {}, el("button", {type: "button", "aria-pressed": String(!hidden.has(k)), onclick: () => {
      if (hidden.has(k)) hidden.delete(k); else hidden.add(k);
      draw();
    }}, sample(colour(k), dash(k)), el("span", {class: "name"}, data.variants[k])))));
    const most = more.has(number) ? here.length : MOST_CHARTS, holder = section.querySelector(".charts");
    const wanted = here.slice(0, most).map(place => { if (!perPlace.has(place)) perPlace.set(place, chartOf(place)); return perPlace.get(place); });
    holder.replaceChildren(...wanted.map(each => each.figure), ...(here.length > most ? [el("button", {type: "button", onclick: () => { more.add(number); draw(); }}, `Show ${here.length - most} more charts`)] : []));
    for (const own of wanted) { own.dirty = true; if (own.visible) own.draw(); }
  }

  // Runs: a line for each group, which opens to its curves, clients, settings and commands.
  let rowsShown = MOST_ROWS;
  const label = group => `${data.places[group[PLACE]].slice(0, 2).join(", ")}, ${data.variants[group[VARIANT]]}`;
  function drawRuns(shown, columns) {
    const words = by("search").value.toLowerCase().split(/\s+/).filter(Boolean), inside = new Set(shown), across = new Set(columns);
    const found = data.groups.map((_, k) => k).filter(k => {
      const group = data.groups[k], text = `${label(group)} ${group[COMMAND].join(" ")}`.toLowerCase();
      return group[SWITCH] === state.s && inside.has(group[PLACE]) && across.has(group[VARIANT]) && words.every(word => text.includes(word));
    });
    const runs = found.reduce((sum, k) => sum + runsOf[k].length, 0);
    by("count").textContent = `${several(runs, "run")} of ${several(found.length, "kind")}`;
    by("cells").replaceChildren(...found.slice(0, rowsShown).map(k => {
      const group = data.groups[k], value = stat(group);
      const told = value ? `${measure().title} ${SIGNS[value[2]]}${fixed(value[0])}${value[1] === null ? "" : ` ± ${fixed(value[1])}`}, ` : "";
      const node = el("details", {class: "cell"}, el("summary", {}, el("span", {class: "text"}, label(group)), el("span", {class: "value"}, `${told}${several(runsOf[k].length, "seed")}`)));
      node.addEventListener("toggle", () => { if (node.open && node.children.length === 1) openRun(node, k); });
      return node;
    }));
    by("more").hidden = found.length <= rowsShown;
    by("more").textContent = `Show ${Math.min(MOST_ROWS, found.length - rowsShown)} more of ${found.length - rowsShown}`;
  }
  function openRun(node, k) {
    const group = data.groups[k], runs = runsOf[k], line = el("div"), heat = el("div"), command = el("pre"), one = el("dl", {class: "facts"});
    const pick = el("select", {"aria-label": "Seed"}, runs.map((run, place) => el("option", {value: place}, `seed ${run[SEED]}`)));
    const own = data.settingNames.map((name, place) => [name, data.settings[group[SETTINGS]][place]]).filter(pair => pair[1] !== "—");
    const settings = el("dl", {class: "facts"});
    facts(settings, own);
    node.append(el("div", {class: "bar"}, el("label", {}, "Run ", pick)), one, line, heat, el("h3", {}, "Repeat it"), command, copyButton(command, () => command.textContent),
      el("details", {}, el("summary", {}, "Settings"), settings));
    const curves = new Curves(line, `${label(group)}: ${data.main} over rounds`);
    const map = data.whole && runs[0][CLIENTS] > 1 ? new HeatMap(heat, `${label(group)}: clients and rounds`) : null;
    const show = () => {
      const place = Number(pick.value), run = runs[place], scale = data.percent ? 100 : 1e4, x = rounds(run);
      const means = curve(run, "mean"), worst = curve(run, "worst_client"), last = means.length - 1;
      facts(one, [["mean, worst client in the last round", `${short(means[last])}, ${short(worst[last])}${data.percent ? " %" : ""}`], ["clients, rounds", `${run[CLIENTS]}, ${run[ROUNDS]}`],
        ["time", duration(run[SECONDS])], ["computed with", data.versions[run[VERSIONS]]]]);
      curves.draw({series: [{name: "mean of the clients", colour: colour(0), x, y: means}, {name: "worst client", colour: colour(1), dash: dash(1), x, y: worst}],
        yLabel: data.main + (data.percent ? " in %" : ""), height: 220, ends: true});
      if (map) map.draw({values: Float32Array.from(run[SCORES], value => (value === null ? NaN : value / scale)), clients: run[CLIENTS], rounds: run[ROUNDS], name: data.main + (data.percent ? " in %" : "")});
      const words = group[COMMAND];
      command.textContent = words.length > 2 ? words[2 + place] : `${words[0]}${run[SEED]}${words[1]}`;
    };
    pick.addEventListener("change", show);
    show();
  }

  function draw() {
    const shown = places(), columns = variants();
    drawAnswer(); drawWins(shown, columns); drawKey();
    for (const section of all(".dataset")) drawDataset(section, shown, columns);
    drawRuns(shown, columns);
    const source = data.switch[state.s];
    for (const node of all("details.table[data-source]")) node.hidden = data.switch.includes(node.dataset.source) && node.dataset.source !== source;
    drawStatements(source);
    const kinds = Object.values(state.filters).filter(Boolean);
    by("chosen").textContent = `Shown: ${[data.switch.length > 1 ? source : "", measure().heading, ...kinds, state.words ? `“${state.words}”` : ""].filter(Boolean).join(", ")}: ${several(shown.length, "place")}, ${columns.length} of ${data.variants.length} ${data.lines === "method" ? "methods" : "variants"}`;
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }
  const soon = throttled(() => { rowsShown = MOST_ROWS; draw(); }, 120);

  if (by("switch")) by("switch").addEventListener("change", event => { state.s = Number(event.target.value); soon(); });
  by("measure").addEventListener("change", event => { state.m = Number(event.target.value); soon(); });
  for (const node of all("select.filter")) node.addEventListener("change", () => { state.filters[node.dataset.option] = node.value; soon(); });
  if (by("variant")) by("variant").addEventListener("input", event => { state.words = event.target.value.trim(); soon(); });
  if (by("aside")) by("aside").addEventListener("change", event => { state.aside = event.target.checked; soon(); });
  if (by("reset")) by("reset").addEventListener("click", () => {
    for (const node of all("select.filter")) node.value = "";
    if (by("variant")) by("variant").value = "";
    state.filters = {}; state.words = ""; soon();
  });
  by("search").addEventListener("input", soon);
  by("more").addEventListener("click", () => { rowsShown += MOST_ROWS; draw(); });
  for (const name of ["verdict", "claim"]) if (by(name)) by(name).addEventListener("input", () => drawStatements(data.switch[state.s]));
  if (innerWidth < 700) by("controls").open = false;
  const everything = () => { for (const own of charts.values()) own.draw(); };
  addEventListener("beforeprint", everything);
  matchMedia("print").addEventListener("change", event => { if (event.matches) everything(); });
  draw();
})();
