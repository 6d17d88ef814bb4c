// Charts of FIRMA's pages: curves with hover, a heat-map of clients and rounds, and the ring. They draw plain data, load
// nothing, and only ever put text into the page as text. Every chart can be read with the keyboard: Tab, then arrows.
"use strict";
const FirmaCharts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 10;
  const DASHES = ["", "7 4", "2 3", "10 3 2 3", "14 4"];
  // From dark blue to yellow, equally bright steps, the same to colour-blind eyes.
  const SCALE = [[0, 32, 77], [0, 51, 111], [57, 72, 107], [87, 93, 109], [112, 113, 115], [138, 135, 121],
    [166, 157, 117], [196, 181, 108], [228, 207, 91], [255, 234, 70]];

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const shape = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = place => `var(--c${place % COLOURS})`;
  const dash = place => DASHES[place % DASHES.length];

  function scaled(share) {
    const at = Math.max(0, Math.min(1, share)) * (SCALE.length - 1), low = Math.min(Math.floor(at), SCALE.length - 2);
    return SCALE[low].map((part, k) => Math.round(part + (SCALE[low + 1][k] - part) * (at - low)));
  }

  // Round numbers between low and high, at most `most` of them.
  function ticks(low, high, most) {
    const span = high - low || 1, raw = span / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= raw - 1e-12);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }
  const short = value => value === null || value === undefined || Number.isNaN(value) ? "none"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(4)).toString();

  // A box beside the pointer; `rows` are [swatch colour or null, name, value].
  class Tip {
    constructor(parent) { this.box = el("div", {class: "tip", hidden: true}); parent.append(this.box); this.parent = parent; }
    show(x, y, title, rows) {
      this.box.replaceChildren(el("strong", {}, title), el("table", {}, rows.map(([mark, name, value]) => {
        const swatch = el("span", {class: "swatch"});
        if (mark) swatch.style.background = mark; else swatch.hidden = true;
        return el("tr", {}, el("td", {class: "name"}, swatch, name), el("td", {class: "number"}, value));
      })));
      this.box.hidden = false;
      const wide = this.parent.clientWidth, own = this.box.offsetWidth;
      this.box.style.left = `${Math.max(0, x + 14 + own > wide ? x - own - 14 : x + 14)}px`;
      this.box.style.top = `${Math.max(0, y - this.box.offsetHeight / 2)}px`;
    }
    hide() { this.box.hidden = true; }
  }

  // What all charts share: they are drawn anew when their width or the theme changes.
  class Chart {
    constructor(parent, label) {
      this.root = el("div", {class: "chart"});
      parent.append(this.root);
      this.label = label;
      this.said = el("div", {class: "skip", "aria-live": "polite"});  // what the arrow keys point at, for screen readers
      this.root.append(this.said);
      this.tip = new Tip(this.root);
      let width = 0;
      new ResizeObserver(() => {
        if (this.root.clientWidth !== width) { width = this.root.clientWidth; this.redraw(); }
      }).observe(this.root);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    }
    redraw() { if (this.given && this.root.clientWidth) this.render(); }
    draw(given) { this.given = given; this.redraw(); }
    canvas(width, height) {
      const ratio = window.devicePixelRatio || 1;
      if (!this.surface) { this.surface = el("canvas", {role: "img", tabindex: 0}); this.root.prepend(this.surface); }
      this.surface.width = Math.round(width * ratio); this.surface.height = Math.round(height * ratio);
      this.surface.style.height = `${height}px`;
      const pen = this.surface.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.font = "12px system-ui, sans-serif";
      return pen;
    }
  }

  // Names at the ends of lines: as far as needed from each other, as near as possible to their lines; text is cut to `most` pixels.
  const LINE = 15;
  function spread(wanted, low, high) {
    const order = wanted.map((_, k) => k).sort((a, b) => wanted[a] - wanted[b]), places = wanted.slice();
    let last = -Infinity;
    for (const k of order) last = places[k] = Math.max(places[k], last + LINE, low);
    last = Infinity;
    for (const k of order.reverse()) last = places[k] = Math.min(places[k], last - LINE, high);
    return places;
  }
  const pen = document.createElement("canvas").getContext("2d");
  const long = text => { pen.font = "12px system-ui, sans-serif"; return pen.measureText(text).width; };
  function cut(text, most) {
    if (long(text) <= most) return text;
    let kept = text.length;
    while (kept > 1 && long(`${text.slice(0, kept)}…`) > most) kept--;
    return `${text.slice(0, kept)}…`;
  }

  // Curves over rounds. draw({series: [{name, colour, dash, x, y, low?, high?, area?}], yLabel, xLabel, from0, format, ends}).
  // With `ends`, names stand at the ends of the lines where there is room for all of them.
  class Curves extends Chart {
    constructor(parent, label, onPick) {
      super(parent, label);
      this.onPick = onPick;
      this.at = null;
    }
    render() {
      const {series, xLabel = "round", yLabel = "", from0 = false, format = short, marked = null} = this.given;
      const width = this.root.clientWidth, height = this.given.height || (width < 520 ? 230 : 300);
      const left = 52, top = 26, bottom = 36, lines = series.filter(one => !one.area && one.x.length);
      const ends = this.given.ends && width >= 520 && lines.length * LINE <= height - top - bottom;
      const names = ends ? Math.min(width * 0.3, Math.max(0, ...lines.map(one => long(one.name))) + 4) : 0, right = 12 + (ends ? names + 14 : 0);
      const all = series.flatMap(one => [...one.y, ...(one.low || []), ...(one.high || [])]).filter(Number.isFinite);
      const xs = series.flatMap(one => one.x);
      let low = from0 ? 0 : Math.min(...(all.length ? [all.reduce((a, b) => Math.min(a, b))] : [0]));
      let high = all.length ? all.reduce((a, b) => Math.max(a, b)) : 1;
      const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 0.05;
      high += room; low -= from0 ? 0 : room;
      const first = xs.length ? xs.reduce((a, b) => Math.min(a, b)) : 1;
      const last = Math.max(first + 1, this.given.last || 0, xs.length ? xs.reduce((a, b) => Math.max(a, b)) : 2);
      const px = x => left + (x - first) / (last - first) * (width - left - right);
      const py = y => top + (high - y) / (high - low) * (height - top - bottom);
      this.frame = {left, right, top, bottom, width, height, first, last, px, py};
      const root = shape("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
        "aria-label": `${this.label}. ${this.summary(series, format)}`});
      for (const tick of ticks(low, high, Math.max(2, Math.floor((height - top - bottom) / 42)))) {
        root.append(shape("line", {class: "grid", x1: left, x2: width - right, y1: py(tick), y2: py(tick)}),
          shape("text", {x: left - 7, y: py(tick) + 4, "text-anchor": "end"}, format(tick)));
      }
      for (const tick of ticks(first, last, Math.max(2, Math.floor((width - left - right) / 70))).filter(Number.isInteger)) {
        root.append(shape("text", {x: px(tick), y: height - bottom + 18, "text-anchor": "middle"}, String(tick)));
      }
      root.append(shape("line", {class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}),
        shape("text", {x: width - right, y: height - 4, "text-anchor": "end"}, xLabel),
        shape("text", {x: 4, y: 11}, yLabel));
      for (const one of series) {
        if (one.low && one.x.length) root.append(shape("path", {d: this.area(one), fill: one.colour, opacity: one.area ? 0.75 : 0.15}));
      }
      for (const one of series) {
        if (one.area) continue;
        root.append(shape("path", {d: this.path(one.x, one.y), fill: "none", stroke: one.colour, "stroke-width": 2,
          "stroke-dasharray": one.dash || null, "stroke-linejoin": "round"}));
        const ends = one.x.length - 1;
        if (ends >= 0 && Number.isFinite(one.y[ends])) root.append(shape("circle", {cx: px(one.x[ends]), cy: py(one.y[ends]), r: 3, fill: one.colour}));
      }
      if (ends) {
        const wanted = lines.map(one => py(one.y[one.y.length - 1])), places = spread(wanted.map(y => Number.isFinite(y) ? y : top), top + 4, height - bottom - 4);
        lines.forEach((one, k) => {
          const x = px(one.x[one.x.length - 1]), edge = width - right;
          if (!Number.isFinite(wanted[k])) return;
          root.append(shape("line", {stroke: one.colour, "stroke-width": 1, opacity: 0.6, x1: x + 4, y1: wanted[k], x2: edge + 10, y2: places[k]}),
            shape("text", {class: "end", x: edge + 13, y: places[k] + 4}, cut(one.name, names)));
        });
      }
      if (marked !== null && marked >= first) root.append(shape("line", {class: "axis", "stroke-width": 2, x1: px(marked), x2: px(marked), y1: top, y2: height - bottom}));
      this.line = shape("line", {class: "cursor", y1: top, y2: height - bottom, visibility: "hidden"});
      root.append(this.line);
      const pointed = event => {
        const box = root.getBoundingClientRect();
        return Math.round(first + ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * (last - first));
      };
      root.addEventListener("pointermove", event => this.point(pointed(event), event));
      root.addEventListener("pointerleave", () => this.unpoint());
      root.addEventListener("blur", () => this.unpoint());
      root.addEventListener("click", event => this.onPick && this.onPick(Math.max(first, Math.min(last, pointed(event)))));
      root.addEventListener("keydown", event => {
        const step = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
        const end = {Home: first, End: last}[event.key];
        if (step || end !== undefined) { this.point(end !== undefined ? end : (this.at ?? last) + (this.at === null ? 0 : step)); event.preventDefault(); }
        if (event.key === "Escape") this.unpoint();
        if (event.key === "Enter" && this.at !== null && this.onPick) this.onPick(this.at);
      });
      const focused = document.activeElement === this.drawn;
      if (this.drawn) this.drawn.replaceWith(root); else this.root.prepend(root);
      this.drawn = root;
      if (focused) root.focus({preventScroll: true});
      if (this.at !== null) this.point(this.at);
    }
    summary(series, format) {
      return series.slice(0, 8).map(one => {
        const place = one.x.length - 1;
        return place < 0 ? "" : `${one.name}: ${format(one.y[place])} in ${this.given.xLabel || "round"} ${one.x[place]}`;
      }).filter(Boolean).join("; ");
    }
    path(xs, ys) {
      const {px, py} = this.frame;
      let text = "", down = false;
      xs.forEach((x, k) => {
        if (Number.isFinite(ys[k])) { text += `${down ? "L" : "M"}${px(x).toFixed(1)} ${py(ys[k]).toFixed(1)}`; down = true; } else down = false;
      });
      return text || "M0 0";
    }
    area(one) {
      const {px, py} = this.frame, kept = one.x.map((x, k) => [x, one.low[k], one.high[k]]).filter(each => Number.isFinite(each[1]) && Number.isFinite(each[2]));
      if (!kept.length) return "M0 0";
      const there = kept.map(([x, , high]) => `${px(x).toFixed(1)} ${py(high).toFixed(1)}`);
      const back = kept.reverse().map(([x, low]) => `${px(x).toFixed(1)} ${py(low).toFixed(1)}`);
      return `M${there.join("L")}L${back.join("L")}Z`;
    }
    point(x, event) {
      const {first, last, px, top, width} = this.frame, format = this.given.format || short;
      this.at = Math.max(first, Math.min(last, x));
      this.line.setAttribute("x1", px(this.at)); this.line.setAttribute("x2", px(this.at));
      this.line.setAttribute("visibility", "visible");
      const rows = this.given.series.map(one => [one, one.x.indexOf(this.at)]).filter(([, k]) => k >= 0)
        .map(([one, k]) => [one.colour, one.name, one.area ? one.high[k] - one.low[k] : one.y[k]])
        .sort((a, b) => (b[2] ?? -Infinity) - (a[2] ?? -Infinity)).slice(0, 14);
      const title = `${this.given.xLabel || "round"} ${this.at}`;
      const told = rows.map(([mark, name, value]) => [mark, name, format(value)]);
      const ratio = this.root.clientWidth / width;
      this.tip.show(px(this.at) * ratio, event ? event.offsetY : top + 60, told.length ? title : `${title}: nothing yet`, told);
      if (!event) this.said.textContent = `${title}: ${told.map(row => `${row[1]} ${row[2]}`).join(", ")}`;
    }
    unpoint() { this.at = null; this.line.setAttribute("visibility", "hidden"); this.tip.hide(); }
  }

  // A bar of the colours and what its ends mean.
  function scaleLegend(low, high, name) {
    const bar = el("canvas", {width: 120, height: 10, "aria-hidden": "true"}), pen = bar.getContext("2d");
    for (let x = 0; x < 120; x++) { pen.fillStyle = `rgb(${scaled(x / 119).join(" ")})`; pen.fillRect(x, 0, 1, 10); }
    bar.style.width = "120px"; bar.style.height = "10px"; bar.style.display = "inline-block";
    return el("p", {class: "quiet"}, `${name}: ${short(low)} (dark) `, bar, ` ${short(high)} (bright); grey: no value`);
  }

  // Clients x rounds. draw({values: Float32Array (rounds x clients), clients, rounds, order, names, marked}).
  class HeatMap extends Chart {
    constructor(parent, label, onPick) {
      super(parent, label);
      this.onPick = onPick;
      this.legend = el("div");
      this.root.after(this.legend);
      this.at = null;
    }
    render() {
      const {values, clients, rounds, order, name = "accuracy", last = rounds, marked = null, chosen = null} = this.given;
      const width = this.root.clientWidth, left = 52, top = 6, bottom = 30, right = 16;
      const height = Math.max(120, Math.min(420, clients * 18)) + top + bottom;
      const columns = Math.max(last, 1), wide = width - left - right, high = height - top - bottom;
      const pen = this.canvas(width, height);
      let least = Infinity, most = -Infinity;
      for (const value of values) if (Number.isFinite(value)) { least = Math.min(least, value); most = Math.max(most, value); }
      if (!Number.isFinite(least)) { least = 0; most = 1; }
      this.range = [least, most];
      const small = new OffscreenCanvas(columns, clients), image = new ImageData(columns, clients);
      const grey = css("--grid"), parts = /^#(..)(..)(..)$/.exec(grey), none = parts ? parts.slice(1).map(each => parseInt(each, 16)) : [200, 200, 200];
      for (let row = 0; row < clients; row++) {
        const client = order ? order[row] : row;
        for (let round = 0; round < columns; round++) {
          const value = round < rounds ? values[round * clients + client] : NaN;
          const rgb = Number.isFinite(value) ? scaled(most > least ? (value - least) / (most - least) : 1) : none;
          const at = 4 * (row * columns + round);
          image.data[at] = rgb[0]; image.data[at + 1] = rgb[1]; image.data[at + 2] = rgb[2]; image.data[at + 3] = 255;
        }
      }
      small.getContext("2d").putImageData(image, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.imageSmoothingEnabled = clients > high;
      pen.drawImage(small, left, top, wide, high);
      this.frame = {left, top, wide, high, columns, clients};
      pen.fillStyle = css("--quiet");
      pen.textAlign = "right"; pen.textBaseline = "middle";
      const each = high / clients, every = Math.max(1, Math.ceil(16 / each));
      for (let row = 0; row < clients; row += every) pen.fillText(String(order ? order[row] : row), left - 6, top + (row + 0.5) * each);
      pen.textAlign = "center"; pen.textBaseline = "top";
      for (const tick of ticks(1, columns, Math.max(2, Math.floor(wide / 60))).filter(Number.isInteger)) {
        pen.fillText(String(tick), left + (tick - 0.5) * wide / columns, top + high + 5);
      }
      pen.textAlign = "left"; pen.fillText("client", 2, top + high + 5);
      pen.strokeStyle = css("--c1"); pen.lineWidth = 2;
      if (marked !== null) pen.strokeRect(left + (marked - 1) * wide / columns, top, wide / columns, high);
      if (chosen !== null) {
        const row = order ? order.indexOf(chosen) : chosen;
        if (row >= 0) pen.strokeRect(left, top + row * each, wide, Math.max(each, 2));
      }
      this.surface.setAttribute("aria-label", `${this.label}: ${clients} clients, ${rounds} rounds, ${name} from ${short(least)} to ${short(most)}. Arrow keys move.`);
      this.legend.replaceChildren(scaleLegend(least, most, name));
      if (!this.bound) this.bind();
    }
    bind() {
      this.bound = true;
      const cell = event => {
        const box = this.surface.getBoundingClientRect(), {left, top, wide, high, columns, clients} = this.frame;
        const round = Math.floor((event.clientX - box.left - left) / wide * columns), row = Math.floor((event.clientY - box.top - top) / high * clients);
        return round >= 0 && round < columns && row >= 0 && row < clients ? [round, row] : null;
      };
      this.surface.addEventListener("pointermove", event => { const found = cell(event); if (found) this.point(...found, event); else this.tip.hide(); });
      this.surface.addEventListener("pointerleave", () => this.tip.hide());
      this.surface.addEventListener("blur", () => this.tip.hide());
      this.surface.addEventListener("click", event => { const found = cell(event); if (found && this.onPick) this.onPick(found[0] + 1, this.client(found[1])); });
      this.surface.addEventListener("keydown", event => {
        const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
        if (event.key === "Enter" && this.at && this.onPick) this.onPick(this.at[0] + 1, this.client(this.at[1]));
        if (event.key === "Escape") this.tip.hide();
        if (!move) return;
        event.preventDefault();
        const {columns, clients} = this.frame, [round, row] = this.at || [this.given.rounds - 1, 0];
        this.point(Math.max(0, Math.min(columns - 1, round + move[0])), Math.max(0, Math.min(clients - 1, row + move[1])));
      });
    }
    client(row) { return this.given.order ? this.given.order[row] : row; }
    point(round, row, event) {
      const {left, top, wide, high, columns, clients} = this.frame, client = this.client(row), {values, rounds, names} = this.given;
      this.at = [round, row];
      const value = round < rounds ? values[round * clients + client] : NaN;
      const title = `client ${client}${names && names[client] ? ` (${names[client]})` : ""}, round ${round + 1}`;
      const text = round < rounds ? short(value) : "not yet";
      this.tip.show(left + (round + 0.5) * wide / columns, top + (row + 0.5) * high / clients, title, [[null, this.given.name || "accuracy", text]]);
      if (!event) this.said.textContent = `${title}: ${text}`;
    }
  }

  // Who sits where and holds what. draw({clients, order, topology, holds, labels, scores, range, links, shares, below, absent, chosen, names, name}).
  class Ring extends Chart {
    constructor(parent, label, onPick) { super(parent, label); this.onPick = onPick; }
    render() {
      const {clients, order, topology, holds = [], scores, range = [0, 1], links = [], shares = [], below = [], absent = [], chosen = null} = this.given;
      const width = this.root.clientWidth, size = Math.min(width, this.given.size || 460), pen = this.canvas(width, size);
      const cx = width / 2, cy = size / 2, outer = Math.min(size / 2 - (clients <= 40 ? 22 : 6), width / 2 - (this.given.tags ? 84 : 6)), inner = outer * 0.74, score = outer * 0.63;
      const seat = new Map(order.map((client, place) => [client, place])), turn = 2 * Math.PI / clients;
      const middle = client => seat.get(client) * turn - Math.PI / 2, gap = clients > 90 ? 0 : Math.min(0.03, turn * 0.08);
      this.frame = {cx, cy, outer, score, turn, order};
      pen.clearRect(0, 0, width, size);
      const sector = (place, from, to, style) => {
        const start = place * turn - Math.PI / 2 - turn / 2 + gap, end = start + turn - 2 * gap;
        pen.beginPath(); pen.arc(cx, cy, to, start, end); pen.arc(cx, cy, from, end, start, true); pen.closePath();
        pen.fillStyle = style; pen.fill();
      };
      const colours = Array.from({length: COLOURS}, (_, k) => css(`--c${k}`)), grid = css("--grid"), quiet = css("--quiet"), ink = css("--ink");
      const gone = new Set(absent), failing = new Set(below);
      order.forEach((client, place) => {
        const held = holds[client], all = held ? held.reduce((a, b) => a + b, 0) : 0;
        if (all) {
          let at = inner;
          held.forEach((count, k) => {
            if (!count) return;
            const next = at + (outer - inner) * count / all;
            sector(place, at, next, colours[k % COLOURS]);
            at = next;
          });
        } else sector(place, inner, outer, grid);
        const value = scores ? scores[client] : NaN, [low, high] = range;
        sector(place, score, inner - 2, Number.isFinite(value) ? `rgb(${scaled(high > low ? (value - low) / (high - low) : 1).join(" ")})` : grid);
        if (gone.has(client)) { pen.globalAlpha = 0.72; sector(place, score, outer, css("--panel")); pen.globalAlpha = 1; }
      });
      const at = (client, radius) => [cx + Math.cos(middle(client)) * radius, cy + Math.sin(middle(client)) * radius];
      const reach = score - 6;
      pen.lineCap = "round";
      const line = (from, to, weight, style) => {
        pen.strokeStyle = style; pen.lineWidth = Math.max(0.6, Math.min(weight * 9, turn * reach));
        pen.beginPath(); pen.moveTo(...from);
        pen.quadraticCurveTo(cx + (from[0] + to[0] - 2 * cx) * 0.3, cy + (from[1] + to[1] - 2 * cy) * 0.3, ...to);
        pen.stroke();
      };
      const drawn = links.filter(([me, other]) => me !== other && seat.has(me) && seat.has(other));
      pen.globalAlpha = chosen === null ? 0.75 : 0.22;
      if (drawn.length <= 4000) for (const [me, other, weight] of drawn) line(at(other, reach), at(me, reach), weight, quiet);
      if (shares.length && shares.length <= 400) for (const [client, weight] of shares) if (seat.has(client)) line(at(client, reach), [cx, cy], weight, quiet);
      pen.globalAlpha = 1;
      if (chosen !== null) {
        for (const [me, other, weight] of drawn) if (me === chosen) {
          line(at(other, reach), at(me, reach), weight, css("--c1"));
          if (clients > 60) continue;
          const [x, y] = at(other, reach - 20);
          pen.fillStyle = ink; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.fillText(weight.toFixed(2), x, y);
        }
        for (const [client, weight] of shares) if (client === chosen) line(at(client, reach), [cx, cy], weight, css("--c1"));
        const place = seat.get(chosen);
        if (place !== undefined) {
          const start = place * turn - Math.PI / 2 - turn / 2;
          pen.strokeStyle = css("--c1"); pen.lineWidth = 3;
          pen.beginPath(); pen.arc(cx, cy, outer + 2, start, start + turn); pen.arc(cx, cy, score - 2, start + turn, start, true); pen.closePath(); pen.stroke();
        }
      }
      pen.fillStyle = quiet; pen.textAlign = "center"; pen.textBaseline = "middle";
      if (clients <= 40) for (const client of order) {
        const [x, y] = at(client, outer + 12), name = this.given.tags && this.given.tags[client];
        if (name) { const side = Math.cos(middle(client)); pen.textAlign = side > 0.25 ? "left" : side < -0.25 ? "right" : "center"; }
        pen.fillText(`${name || client}${failing.has(client) ? " ✕" : ""}`, x, y);
      }
      pen.textAlign = "center";
      if (["star", "all-reduce", "all-gather"].includes(topology)) {
        pen.fillStyle = css("--panel"); const text = topology === "star" ? "server" : "average of all";
        const half = pen.measureText(text).width / 2 + 6; pen.fillRect(cx - half, cy - 10, 2 * half, 20);
        pen.fillStyle = ink; pen.fillText(text, cx, cy);
      } else if (topology === "none") pen.fillText("nobody shares", cx, cy);
      this.surface.setAttribute("aria-label", `${this.label}: ${clients} clients, ${topology}. Arrow keys move from client to client; what each holds is told beside the picture.`);
      if (!this.bound) this.bind();
    }
    bind() {
      this.bound = true;
      const client = event => {
        const box = this.surface.getBoundingClientRect(), {cx, cy, outer, score, turn, order} = this.frame;
        const x = event.clientX - box.left - cx, y = event.clientY - box.top - cy, far = Math.hypot(x, y);
        if (far > outer + 20 || far < score * 0.4) return null;
        return order[Math.floor(((Math.atan2(y, x) + Math.PI / 2 + turn / 2 + 4 * Math.PI) % (2 * Math.PI)) / turn) % order.length];
      };
      this.surface.addEventListener("pointermove", event => {
        const found = client(event);
        if (found === null) { this.tip.hide(); return; }
        const value = this.given.scores ? this.given.scores[found] : NaN, names = this.given.names;
        this.tip.show(event.offsetX, event.offsetY, `client ${found}${names && names[found] ? ` (${names[found]})` : ""}`,
          [[null, this.given.name || "accuracy", short(value)], ...held(this.given, found).slice(0, 6)]);
      });
      this.surface.addEventListener("pointerleave", () => this.tip.hide());
      this.surface.addEventListener("click", event => { const found = client(event); if (found !== null && this.onPick) this.onPick(found); });
      this.surface.addEventListener("keydown", event => {
        const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
        if (!step || !this.onPick) return;
        event.preventDefault();
        const {order} = this.frame, place = order.indexOf(this.given.chosen);
        this.onPick(order[(place + (place < 0 && step < 0 ? 0 : step) + order.length) % order.length]);
      });
    }
  }

  // The classes that a client holds, the most frequent first: [colour, name, share in per cent].
  function held(given, client) {
    const counts = (given.holds || [])[client];
    if (!counts) return [];
    const all = counts.reduce((a, b) => a + b, 0) || 1;
    return counts.map((count, k) => [colour(k), `class ${given.labels && given.labels[k] !== undefined ? given.labels[k] : k}`, count])
      .filter(row => row[2]).sort((a, b) => b[2] - a[2]).map(([mark, name, count]) => [mark, name, `${(100 * count / all).toFixed(0)} %`]);
  }

  // A line as in the chart, for legends.
  function sample(stroke, dashes) {
    return shape("svg", {width: 26, height: 10, "aria-hidden": "true"}, shape("line", {x1: 1, x2: 25, y1: 5, y2: 5, stroke, "stroke-width": 3, "stroke-dasharray": dashes || null}));
  }

  return {Curves, HeatMap, Ring, el, colour, dash, short, held, sample, scaled};
})();
