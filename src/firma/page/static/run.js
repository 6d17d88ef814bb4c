// The page of a run, a comparison or a sweep: takes the stream, keeps what was chosen, draws.
"use strict";
(() => {
  const {Curves, HeatMap, Ring, el, colour, dash, short, held, sample} = FirmaCharts;
  const {by, follow, throttled, duration, bytes, several, facts, tiles, copyButton} = FirmaPage;
  const MOST_ROWS = 200, MOST_GROUPS = 10, RECENT = 20;
  const ROUND = 0, MEAN = 1, WORST = 2, BYTES = 3, TOOK = 4, PARTS = 5;  // places in a row

  let session = {}, runs = new Map(), groups = new Map(), hidden = new Set(), touched = false;
  let chosen = null, following = true, round = null, client = null, details = null, weights = null, scores = null;
  let lastNews = performance.now();

  const curves = new Curves(by("chart"), "Curves over rounds", pickRound);
  const heat = new HeatMap(by("heat"), "Heat-map of clients and rounds", (at, who) => { client = who; pickRound(at); });
  const ring = new Ring(by("ring"), "The clients in their order", who => { client = who; draw(); });
  const time = new Curves(by("time"), "Seconds per round", pickRound);
  const sent = new Curves(by("sent"), "Megabytes sent per round", pickRound);

  // Runs that differ by their seed only are one group, and have one colour and one label.
  const labelOf = run => run.facts.label;
  function state(run) {
    if (run.end) return run.end.status;
    if (session.written === false) return "stopped";
    return run.rows.length ? "running" : "starting";
  }

  function take(message) {
    lastNews = performance.now();
    session = message.session;
    if (message.reset) {
      for (const row of drawnRows.values()) row.node.remove();
      drawnRows.clear(); runs = new Map(); groups = new Map(); details = weights = scores = null;
    }
    for (const update of message.runs) {
      let run = runs.get(update.id);
      if (!run) {
        run = {id: update.id, facts: update.facts, rows: [], end: null, group: update.facts.group};
        runs.set(update.id, run);
        if (!groups.has(run.group)) {
          groups.set(run.group, groups.size);
          if (groups.size > MOST_GROUPS && !touched) hidden.add(run.group);
        }
        run.place = [...runs.values()].filter(each => each.group === run.group).length - 1;
      }
      run.rows.splice(update.from, Infinity, ...update.rows);
      run.end = update.end;
    }
    if (chosen === null || !runs.has(chosen) || (following && message.runs.length)) {
      const live = [...runs.values()].filter(each => !each.end && each.rows.length);
      const newest = live.length ? live[live.length - 1] : [...runs.values()].filter(each => each.rows.length).pop() || [...runs.values()].pop();
      if (newest && (newest.id !== chosen)) choose(newest.id);
    }
    const run = runs.get(chosen);
    if (run && message.runs.some(each => each.id === chosen)) load(run);
    draw();
  }

  function choose(name) {
    chosen = name; details = weights = scores = null; round = null;
    const run = runs.get(name);
    if (run) load(run);
    draw();
  }

  // What only the chosen run needs. Answers for a run that is no longer chosen are dropped.
  let loading = false, again = false;
  async function load(run) {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const ask = async (what, more) => {
        const answer = await fetch(`/${what}?run=${encodeURIComponent(run.id)}${more || ""}`);
        if (!answer.ok) throw new Error(answer.statusText);
        return answer;
      };
      if (!details || details.id !== run.id) {
        const found = {...await (await ask("details")).json(), id: run.id};
        if (run.id === chosen) { details = found; scores = {id: run.id, values: new Float32Array(0), rounds: 0}; }
      }
      const had = scores && scores.id === run.id ? scores.rounds : 0;
      const fresh = new Float32Array(await (await ask("scores", `&from=${had}`)).arrayBuffer());
      const told = await (await ask("weights")).json();
      if (run.id === chosen && details && details.id === run.id && scores.rounds === had) {
        const whole = new Float32Array(scores.values.length + fresh.length);
        whole.set(scores.values); whole.set(fresh, scores.values.length);
        scores = {id: run.id, values: whole, rounds: whole.length / details.clients};
        weights = told;
      }
    } catch { setTimeout(() => { if (runs.has(chosen)) load(runs.get(chosen)); }, 1500); }  // the server is gone for a moment
    loading = false;
    draw();
    if (again) { again = false; if (runs.has(chosen)) load(runs.get(chosen)); }
  }

  function pickRound(at) {
    const run = runs.get(chosen);
    if (!run) return;
    round = at >= run.rows.length ? null : Math.max(1, at);
    draw();
  }

  // Rounds that are left at the speed of the last ones, and runs that are left at the speed of those that are over.
  function timeLeft() {
    const live = [...runs.values()].filter(each => !each.facts.stored), over = live.filter(each => each.end);
    const working = live.filter(each => !each.end && each.rows.length);
    const speed = rows => { const last = rows.slice(-RECENT).map(row => row[TOOK]).filter(Number.isFinite); return last.length ? last.reduce((a, b) => a + b, 0) / last.length : NaN; };
    let left = 0, known = false;
    for (const run of working) { const each = speed(run.rows); if (Number.isFinite(each)) { left += each * (run.facts.rounds - run.rows.length); known = true; } }
    const waiting = (session.runs || live.length) - live.length;
    const took = over.map(run => run.end.seconds).filter(Number.isFinite);
    const whole = took.length ? took.reduce((a, b) => a + b, 0) / took.length : working.length ? speed(working[0].rows) * working[0].facts.rounds : NaN;
    if (waiting > 0 && Number.isFinite(whole)) { left += waiting * whole; known = true; }
    return known ? left : NaN;
  }

  const shown = run => !hidden.has(run.group) && matches(run);
  const matches = run => {
    const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${run.facts.label} ${run.facts.method} ${run.facts.dataset} ${run.facts.scenario} seed${run.facts.seed}`.toLowerCase();
    return words.every(word => text.includes(word));
  };

  function series() {
    const metric = by("metric").value, kinds = metric === "both" ? [[MEAN, "mean"], [WORST, "worst"]] : metric === "worst" ? [[WORST, ""]] : [[MEAN, ""]];
    const list = [...runs.values()].filter(run => run.rows.length && shown(run) && !run.off);
    const made = [];
    for (const [column, suffix] of kinds) {
      const extra = suffix ? `, ${suffix}` : "";
      if (by("seeds").value === "each") {
        for (const run of list) {
          const many = list.some(each => each !== run && each.group === run.group);
          made.push({name: `${labelOf(run)}${many ? ` seed ${run.facts.seed}` : ""}${extra}`, colour: colour(groups.get(run.group)),
            dash: dash(suffix === "worst" ? run.place + 2 : run.place), x: run.rows.map(row => row[ROUND]), y: run.rows.map(row => row[column])});
        }
      } else {
        for (const [group, place] of groups) {
          const own = list.filter(run => run.group === group);
          if (!own.length) continue;
          const most = Math.max(...own.map(run => run.rows.length)), x = [], y = [], low = [], high = [];
          for (let at = 0; at < most; at++) {
            const values = own.map(run => run.rows[at] && run.rows[at][column]).filter(Number.isFinite);
            x.push(at + 1); y.push(values.length ? values.reduce((a, b) => a + b, 0) / values.length : NaN);
            low.push(Math.min(...values)); high.push(Math.max(...values));
          }
          made.push({name: `${labelOf(own[0])} (${several(own.length, "seed")})${extra}`, colour: colour(place), dash: dash(suffix === "worst" ? 2 : 0), x, y, low, high});
        }
      }
    }
    return made;
  }

  function drawHeader() {
    const all = [...runs.values()], live = all.filter(run => !run.facts.stored), over = live.filter(run => run.end).length;
    const first = all[0], planned = session.runs || live.length;
    const title = session.title || (first ? `${first.facts.dataset}, ${first.facts.scenario}, ${first.facts.clients} clients` : session.folder || "Waiting for the first run");
    by("title").textContent = title;
    document.title = `${title} · FIRMA`;
    const run = [...live].reverse().find(each => !each.end && each.rows.length), left = timeLeft();
    const failed = live.filter(each => each.end && each.end.status === "failed").length;
    const busy = session.written !== false && over < planned && live.length > 0;
    let words = "No run yet.";
    if (!live.length && all.length) words = `Finished: ${several(all.length, "run")} from the results folder.`;
    else if (busy && run) words = `Running: ${run.facts.method} seed ${run.facts.seed}, round ${run.rows.length} of ${run.facts.rounds}; run ${Math.min(over + 1, planned)} of ${planned}${Number.isFinite(left) ? `; about ${duration(left)} left` : ""}.`;
    else if (busy) words = `Starting: ${over} of ${several(planned, "run")} done.`;
    else if (over >= planned && planned) words = `Finished: ${several(over, "run")}${all.length > live.length ? `, and ${all.length - live.length} from before` : ""}.`;
    else if (live.length) words = `Stopped after ${over} of ${several(planned, "run")}: the process that wrote this has ended.`;
    if (failed) words += ` ${several(failed, "run")} failed.`;
    by("state").textContent = words;
    by("state").className = `state ${failed ? "bad" : busy ? "" : over >= planned ? "good" : "warn"}`;
    const rounds = live.reduce((sum, each) => sum + (each.end ? 1 : each.rows.length / each.facts.rounds), 0);
    by("progress").value = planned ? Math.min(1, rounds / planned) : all.length ? 1 : 0;
    const best = all.filter(each => each.rows.length).map(each => [each, each.rows[each.rows.length - 1]]).sort((a, b) => b[1][MEAN] - a[1][MEAN])[0];
    tiles(by("tiles"), [
      ["runs, rounds", `${all.length}, ${all.reduce((sum, each) => sum + each.rows.length, 0).toLocaleString("en")}`],
      ["best mean now", best ? `${short(best[1][MEAN])} ${labelOf(best[0])}` : "none"],
      ["sent by all runs", bytes(all.reduce((sum, each) => sum + each.rows.reduce((part, row) => part + row[BYTES], 0), 0))],
      ["time left", busy ? Number.isFinite(left) ? duration(left) : "not known yet" : "nothing to do"],
    ]);
    by("command").textContent = session.command || "not recorded";
    by("foot").textContent = `${session.folder || ""}${session.process ? `, written by process ${session.process}` : ""}. This page only reads; closing it changes nothing.`;
  }

  function drawLegend() {
    const known = [...groups].filter(([group]) => [...runs.values()].some(run => run.group === group && matches(run)));
    by("legend").replaceChildren(...known.slice(0, 60).map(([group, place]) => {
      const own = [...runs.values()].filter(run => run.group === group && run.rows.length);
      const last = own.map(run => run.rows[run.rows.length - 1][by("metric").value === "worst" ? WORST : MEAN]).filter(Number.isFinite);
      const value = last.length ? last.reduce((a, b) => a + b, 0) / last.length : null;
      const label = labelOf([...runs.values()].find(run => run.group === group));
      return el("li", {}, el("button", {type: "button", "aria-pressed": String(!hidden.has(group)), onclick: () => {
        touched = true;
        if (hidden.has(group)) hidden.delete(group); else hidden.add(group);
        draw();
      }}, sample(colour(place), ""), el("span", {class: "name"}, label), el("span", {class: "value"}, value === null ? "" : short(value))));
    }));
  }

  // Only what has changed is written: a table of two hundred rows must not lose the keyboard's place.
  const drawnRows = new Map();
  function drawRuns() {
    const list = [...runs.values()].filter(matches), body = by("runs").tBodies[0], kept = list.slice(-MOST_ROWS).reverse();
    const wanted = new Set(kept.map(run => run.id));
    for (const [name, row] of drawnRows) if (!wanted.has(name)) { row.node.remove(); drawnRows.delete(name); }
    kept.forEach((run, place) => {
      let row = drawnRows.get(run.id);
      if (!row) {
        const box = el("input", {type: "checkbox", "aria-label": `show ${labelOf(run)} seed ${run.facts.seed}`});
        box.addEventListener("change", () => { const now = runs.get(run.id); now.off = !box.checked; if (box.checked) hidden.delete(now.group); draw(); });
        const name = el("button", {type: "button", class: "name"}, labelOf(run));
        name.addEventListener("click", () => { following = false; by("follow").checked = false; choose(run.id); });
        row = {box, name, node: el("tr", {}, el("td", {}, box), el("td", {}, name), ...Array.from({length: 7}, (_, k) => el("td", {class: k === 1 ? null : "number"})))};
        drawnRows.set(run.id, row);
      }
      if (body.children[place] !== row.node) body.insertBefore(row.node, body.children[place] || null);
      row.box.checked = !hidden.has(run.group) && !run.off;
      row.node.setAttribute("aria-selected", String(run.id === chosen));
      const last = run.rows[run.rows.length - 1], spent = run.end && run.end.seconds || run.rows.reduce((sum, each) => sum + (each[TOOK] || 0), 0);
      const text = [run.facts.seed, state(run), `${run.rows.length} of ${run.facts.rounds}`, last ? short(last[MEAN]) : "", last ? short(last[WORST]) : "",
        duration(spent), bytes(run.rows.reduce((sum, each) => sum + each[BYTES], 0))];
      text.forEach((word, k) => { const cell = row.node.cells[k + 2]; if (cell.textContent !== String(word)) cell.textContent = word; });
      row.node.cells[3].className = {failed: "bad", stopped: "warn", interrupted: "warn", finished: "good"}[state(run)] || "";
      if (run.end && run.end.error) row.node.cells[3].textContent = `failed: ${run.end.error}`;
    });
    by("more").textContent = list.length > MOST_ROWS ? `The newest ${MOST_ROWS} of ${list.length} runs are listed; the filter above finds the others.` : "";
    const select = by("chosen");
    if (document.activeElement !== select) {
      select.replaceChildren(...kept.map(run => el("option", {value: run.id}, `${labelOf(run)} seed ${run.facts.seed}`)));
      select.value = chosen;
    }
  }

  function orderOf(at) {
    const all = Array.from({length: details.clients}, (_, k) => k);
    const found = (details.orders || []).filter(([start]) => start <= at).pop();
    return found && found[1].length === details.clients ? found[1] : all;
  }

  function drawOne() {
    const run = runs.get(chosen);
    if (!run) return;
    const done = run.rows.length, at = round === null ? done : Math.min(round, done), slider = by("round");
    slider.max = Math.max(1, done); if (document.activeElement !== slider || round === null) slider.value = Math.max(1, at);
    by("round-said").textContent = `${at} of ${run.facts.rounds}${round === null ? " (latest)" : ""}`;
    const row = run.rows[at - 1], title = run.facts.title || "accuracy";
    facts(by("one"), [["method", `${run.facts.method}, seed ${run.facts.seed}`], ["data", `${run.facts.dataset}, ${run.facts.scenario}`],
      ["state", run.end && run.end.error ? `failed: ${run.end.error}` : state(run)],
      [`mean ${title}`, row ? short(row[MEAN]) : "none yet"], [`worst client's ${title}`, row ? short(row[WORST]) : "none yet"],
      ...(weights && round === null ? Object.entries(weights.metrics || {}).map(([name, value]) => [`mean ${name.replaceAll("_", " ")}`, short(value)]) : [])]);
    if (!details || details.id !== chosen || !scores) return;
    const clients = details.clients, names = details.client_names || [], order = orderOf(at || 1);
    const known = Math.min(scores.rounds, at), now = known ? scores.values.subarray((known - 1) * clients, known * clients) : null;
    let least = Infinity, most = -Infinity;
    for (const value of scores.values) if (Number.isFinite(value)) { least = Math.min(least, value); most = Math.max(most, value); }
    const sorted = {ring: order, number: order.slice().sort((a, b) => a - b), score: order.slice().sort((a, b) => (now ? now[a] - now[b] : 0) || a - b)}[by("order").value];
    heat.draw({values: scores.values, clients, rounds: scores.rounds, last: run.facts.rounds, order: sorted, names, name: title, marked: round === null ? null : at, chosen: client});
    const current = weights && weights.mixing && weights.round === at ? weights : null;
    const gate = current && current.gate, below = gate ? gate.below : [];
    const present = current && current.participants, absent = present ? order.filter(each => !present.includes(each)) : [];
    ring.draw({clients, order, topology: current ? current.mixing : details.topology, holds: details.holds, labels: details.labels, scores: now,
      range: Number.isFinite(least) ? [least, most] : [0, 1], links: current ? current.links : [], shares: current ? current.shares : [],
      below, absent, chosen: client !== null && client < clients ? client : null, names, name: title});
    const way = {ring: "a ring: each client mixes with its two neighbours", star: "a server averages", "all-reduce": "an average of all, without a server",
      "all-gather": "everybody reads everybody", none: "nobody shares anything", graph: "a graph of neighbours"}[current ? current.mixing : details.topology] || details.topology;
    by("ring-said").textContent = `Round ${at}: ${way}${current && current.passes > 1 ? `, ${current.passes} passes` : ""}. Outside: the classes that a client holds; inside: its ${title} (dark is low)${details.holds && details.holds.length ? "" : "; who holds what was not recorded"}.`
      + (absent.length ? ` ${clients - absent.length} of ${clients} take part.` : "") + (details.dishonest && details.dishonest.length ? ` Dishonest: ${details.dishonest.join(", ")}.` : "");
    const classes = details.holds && details.holds.length ? details.holds[0].length : 0;
    by("ring-legend").replaceChildren(...Array.from({length: Math.min(classes, 20)}, (_, k) => {
      const mark = el("span", {class: "swatch"}); mark.style.background = colour(k);
      return el("span", {}, mark, `${details.labels && details.labels[k] !== undefined ? details.labels[k] : k}  `);
    }), classes > 20 ? `and ${classes - 20} more` : "");
    drawClient(now, current, gate, names, at);
    by("command-one").textContent = details.command || "not recorded";
    facts(by("settings"), Object.entries(details.settings || {}));
    const parts = [["training", 0], ["mixing", 1], ["testing", 2]], x = run.rows.map(each => each[ROUND]);
    const floor = run.rows.map(() => 0), stacked = [];
    if (run.rows.some(each => Number.isFinite(each[PARTS]))) {
      for (const [name, place] of parts) {
        const low = floor.slice(), high = run.rows.map((each, k) => floor[k] + (each[PARTS + place] || 0));
        high.forEach((value, k) => { floor[k] = value; });
        stacked.push({name, colour: colour(place), x, y: high, low, high, area: true});
      }
      time.draw({series: stacked, yLabel: "s", from0: true, height: 200});
    } else time.draw({series: [{name: "the whole round", colour: colour(0), x, y: run.rows.map(each => each[TOOK])}], yLabel: "s", from0: true, height: 200});
    const sums = parts.map(([name, place]) => [name, run.rows.reduce((sum, each) => sum + (each[PARTS + place] || 0), 0)]);
    const total = run.rows.reduce((sum, each) => sum + (each[TOOK] || 0), 0);
    by("time-said").textContent = `${duration(total)} in all` + (stacked.length ? `: ${sums.map(([name, value]) => `${name} ${value.toFixed(1)} s`).join(", ")}; the rest is starting, compiling and saving. Blue (bottom): training, orange: mixing, green (top): testing.` : "; parts of rounds were not recorded.");
    sent.draw({series: [{name: "all clients together", colour: colour(0), x, y: run.rows.map(each => each[BYTES] / 1e6)}], yLabel: "MB", from0: true, height: 200});
    by("sent-said").textContent = `${bytes(run.rows.reduce((sum, each) => sum + each[BYTES], 0))} in all.`;
  }

  function drawClient(now, current, gate, names, at) {
    const body = by("weights").tBodies[0], has = client !== null && client < details.clients;
    by("client-hint").hidden = has;
    by("client-title").textContent = has ? `Client ${client}${names[client] ? ` (${names[client]})` : ""}` : "Client";
    const name = who => `client ${who}${names[who] ? ` (${names[who]})` : ""}`;
    if (has) {
      const own = held(details, client);
      facts(by("client"), [[details.title || "accuracy", now ? `${short(now[client])} in round ${at}` : "none yet"], ["training samples", details.samples && details.samples[client] !== undefined ? details.samples[client].toLocaleString("en") : "not recorded"],
        ["holds", own.length ? own.map(row => `${row[1]}: ${row[2]}`).join(", ") : "not recorded"]]);
    } else by("client").replaceChildren();
    const claimed = new Map(gate ? gate.claimed : []);
    if (!current) by("gate").textContent = at && round !== null ? "Weights are kept for the latest round only; press Latest." : "No weights were recorded for this round.";
    else if (gate) by("gate").textContent = `The gate asks for a training accuracy of ${short(gate.threshold)}: ${gate.below.length ? `${several(gate.below.length, "client")} below it (${gate.below.slice(0, 20).join(", ")}${gate.below.length > 20 ? ", …" : ""})${details.clients <= 40 ? ", marked ✕" : ""}` : "all pass"}.`;
    else by("gate").textContent = {none: "Nobody shares in this round.", "all-gather": "A robust combination of all: weights have no meaning."}[current.mixing] || "There is no gate in this round.";
    const links = current ? (current.links || []).filter(([me]) => has && me === client) : [];
    const shares = current ? (current.shares || []).slice().sort((a, b) => b[1] - a[1]) : [];
    const rows = links.length ? links.map(([me, other, weight]) => [me === other ? "its own" : name(other), weight, me === other ? null : other])
      : shares.slice(0, 50).map(([who, weight]) => [name(who), weight, null]);
    body.replaceChildren(...rows.map(([from, weight, other]) => el("tr", {}, el("td", {}, from), el("td", {class: "number"}, weight.toFixed(4)),
      el("td", {}, other === null || !gate ? "" : `${gate.below.includes(other) ? "✕ below" : "passes"} (${short(claimed.get(other))})`))));
    by("weights").hidden = !rows.length;
  }

  const draw = throttled(() => {
    drawHeader();
    drawLegend();
    drawRuns();
    const list = series(), run = runs.get(chosen);
    curves.draw({series: list, yLabel: run ? run.facts.title || "accuracy" : "", last: Math.max(0, ...[...runs.values()].filter(shown).map(each => each.facts.rounds)), marked: round});
    drawOne();
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }, 200);

  for (const name of ["metric", "seeds", "order"]) by(name).addEventListener("change", draw);
  by("filter").addEventListener("input", draw);
  by("all").addEventListener("click", () => { touched = true; hidden.clear(); for (const run of runs.values()) run.off = false; draw(); });
  by("chosen").addEventListener("change", event => { following = false; by("follow").checked = false; choose(event.target.value); });
  by("follow").addEventListener("change", event => { following = event.target.checked; });
  by("round").addEventListener("input", event => pickRound(Number(event.target.value)));
  by("latest").addEventListener("click", () => { round = null; draw(); });
  for (const name of ["command", "command-one"]) by(name).after(copyButton(by(name), () => by(name).textContent));
  follow(take);
  draw();
})();
