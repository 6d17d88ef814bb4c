// The operator's page of a site. Names and notices come from others: they are only ever written as text.
"use strict";
(() => {
  const {Curves, Ring, el, colour, short} = FirmaCharts;
  const {by, follow, throttled, duration, bytes, several, facts, tiles, copyButton} = FirmaPage;
  let site = null, now = null, came = 0, silence = {};
  const curve = new Curves(by("curve"), "This site's results over rounds");
  const ring = new Ring(by("ring"), "The members in the order of the ring");

  // Seconds since a time of the server's clock; the clock of this device is not asked.
  const ago = time => now === null ? NaN : Math.max(0, now - time + (performance.now() - came) / 1000);
  const since = time => { const seconds = ago(time); return Number.isFinite(seconds) ? `${duration(seconds)} ago` : ""; };

  function take(message) {
    if (message.site) site = message.site;
    if (message.now) { now = message.now; silence = message.silence; came = performance.now(); }
    draw();
  }

  function drawHeader() {
    const doing = site.process ? `running as process ${site.process}` : site.finished ? "finished" : "not running";
    by("title").textContent = `${site.federation}: ${site.site}`;
    document.title = `${site.site} · ${site.federation}`;
    by("state").textContent = `${site.site} is ${doing}: round ${site.round} of ${site.rounds}${site.left && site.process ? `, about ${duration(site.left)} left` : ""}.`;
    by("state").className = `state ${site.process || site.finished ? "good" : "bad"}`;
    by("condition").textContent = site.process ? site.condition : site.ended && !site.finished ? `Ended: ${site.ended}` : "";
    by("condition").hidden = !by("condition").textContent;
    by("progress").value = site.rounds ? site.round / site.rounds : 0;
    const here = site.members.filter(each => each.in).length;
    tiles(by("tiles"), [
      [site.metric || "accuracy", site.value === null ? "none yet" : short(site.value)],
      [`members in, quorum ${site.quorum}`, `${here} of ${site.members.length}`],
      ["view", site.view ? `${site.view.number}, from round ${site.view.from_round}` : "none yet"],
      ["last event", site.last ? since(site.last) : "none"],
    ]);
  }

  function certificate(member) {
    if (member.days < 0) return ["bad", `expired ${-member.days} days ago`];
    return [member.certificate ? "warn" : "", `${several(member.days, "day")} left`];
  }

  function heard(member) {
    if (member.me) return ["", "this site", null];
    const seconds = silence[member.name];
    if (seconds === undefined) return ["quiet", site.live ? "never" : "not known here", null];
    const share = seconds / site.patience;
    const words = `${duration(seconds)} ago, patience ${duration(site.patience)}`;
    return [share > 1 ? "bad" : share > 0.5 ? "warn" : "", share > 1 ? `silent: ${words}` : words, Math.min(1, share)];
  }

  function drawMembers() {
    by("table").tBodies[0].replaceChildren(...site.members.map(member => {
      const [tone, words, share] = heard(member), [worn, left] = certificate(member);
      const meter = share === null ? null : el("span", {class: `meter ${tone}`}, el("i"));
      if (meter) meter.firstChild.style.width = `${(100 * share).toFixed(0)}%`;
      const inside = member.in ? `yes, since round ${member.since_round} (${since(member.since)})` : "no";
      return el("tr", {}, el("td", {class: "name"}, member.name, el("div", {class: "quiet"}, `${member.address}${member.neighbour ? ", neighbour" : ""}`)),
        el("td", {class: member.in ? "" : "warn"}, inside), el("td", {class: tone}, words, meter),
        el("td", {class: "number"}, member.weight === undefined || member.weight === null ? "" : member.weight.toFixed(3)),
        el("td", {class: "number"}, member.me ? "" : bytes(member.sent)), el("td", {class: `number ${member.refused ? "warn" : ""}`}, String(member.refused)),
        el("td", {class: worn}, left, member.certificate ? el("div", {class: "quiet"}, member.certificate) : null));
    }));
    by("view").textContent = site.view ? `View ${site.view.number}: ${site.view.members.join(" → ")}, since round ${site.view.from_round}, ${since(site.view.time)}. Rounds need ${site.quorum} of ${site.members.length} members.`
      : `No view yet: a federation starts when all ${site.members.length} members are there.`;
    by("heard").textContent = site.live ? "" : "When members were last heard is known to the running process only: start it with firma join --page.";
  }

  function drawCharts() {
    const x = site.curve.map(row => row[0]), clean = column => site.curve.map(row => row[column] === null ? NaN : row[column]);
    const series = [{name: `${site.metric} on test data`, colour: colour(0), x, y: clean(1)}];
    if (site.curve.some(row => Number.isFinite(row[2]))) series.push({name: "on training data", colour: colour(1), dash: "7 4", x, y: clean(2)});
    curve.draw({series, yLabel: site.metric, last: site.rounds});
    const sum = column => site.curve.reduce((total, row) => total + (row[column] || 0), 0);
    by("curve-said").textContent = site.curve.length ? `Solid: on this site's test data${series.length > 1 ? "; dashed: on its training data" : ""}. Rounds took ${duration(sum(4))}: training ${duration(sum(5))}, exchanging and mixing ${duration(sum(6))}; ${bytes(sum(3))} sent in them.` : "No round is done yet.";
    const names = site.members.map(each => each.name), inside = site.view ? site.view.members.filter(each => names.includes(each)) : names;
    const order = inside.map(each => names.indexOf(each)), mine = site.members.findIndex(each => each.me);
    const links = site.members.map((each, k) => [mine, k, each.weight]).filter(([, , weight]) => Number.isFinite(weight));
    ring.draw({clients: order.length, order, topology: "ring", holds: [], labels: [], scores: null, links, chosen: mine >= 0 && order.includes(mine) ? mine : null,
      tags: names.map(each => each.length > 12 ? `${each.slice(0, 11)}…` : each), names, size: 320, name: "accuracy"});
    const weights = site.members.filter(each => Number.isFinite(each.weight)).map(each => `${each.me ? "own" : each.name} ${each.weight.toFixed(3)}`);
    by("ring-said").textContent = weights.length ? `Weights of the last round: ${weights.join(", ")}.` : "In the last round members were averaged by their number of samples, or there was none yet.";
  }

  // Test samples per class: a bar, the label and the number; the largest class fills its bar.
  function support(counts) {
    const all = Object.entries(counts), most = Math.max(1, ...all.map(([, count]) => count)), shown = all.slice(0, 40);
    if (!all.length) return el("span", {class: "quiet"}, "not shared");
    const rows = shown.map(([label, count]) => {
      const bar = el("span", {class: "meter", "aria-hidden": "true"}, el("i"));
      bar.firstChild.style.width = `${(100 * count / most).toFixed(0)}%`;
      return el("li", {}, el("span", {class: "name"}, label), bar, el("span", {class: "count"}, count.toLocaleString("en")));
    });
    if (all.length > shown.length) rows.push(el("li", {class: "quiet"}, `and ${several(all.length - shown.length, "class")} more`));
    return el("ul", {class: "support"}, ...rows);
  }

  function drawResults() {
    const found = site.results;
    by("results-section").hidden = !found;
    if (!found) return;
    by("results-said").textContent = `${found.line}.`;
    by("results-metric").textContent = found.metric;
    by("results").tBodies[0].replaceChildren(...found.sites.map(each => el("tr", {}, el("td", {class: "name"}, each.site),
      el("td", {class: "number"}, String(each.round)), el("td", {class: "number"}, each.value === null ? "not finite" : each.value.toFixed(4)),
      el("td", {class: "number"}, each.samples.toLocaleString("en")), el("td", {}, support(each.support)))),
      ...found.silent.map(name => el("tr", {}, el("td", {class: "name"}, name), el("td", {class: "quiet", colspan: "4"}, "shares nothing, or nothing has arrived"))));
  }

  function drawRest() {
    by("notices").replaceChildren(...(site.notices.length ? site.notices.map(each => el("li", {class: each.level === "info" ? "" : "warn"},
      `${each.level === "info" ? "" : "Warning: "}${each.says} `, el("span", {class: "quiet"}, since(each.time)), each.todo ? el("span", {class: "todo"}, `What to do: ${each.todo}`) : null)) : [el("li", {class: "quiet"}, "None.")]));
    by("verdict").textContent = `Audit ${site.audit.verdict}`;
    by("verdict").className = `state ${site.audit.passed === null ? "" : site.audit.passed ? "good" : "bad"}`;
    facts(by("audit"), site.audit.passed === null ? [] : [["messages", site.audit.messages.toLocaleString("en")], ["bytes", bytes(site.audit.bytes)],
      ["tensors", site.audit.tensors.join(", ") || "none"],
      ...site.audit.numbers.map(each => [each, site.audit.words[each] || "an agreed number"]),
      ...site.audit.breaches.map(each => ["BREACH", each]), ...site.audit.unfinished.map(each => ["unfinished", each])]);
    by("digest").textContent = site.digest;
    facts(by("refused"), Object.entries(site.refused).length ? Object.entries(site.refused) : [["messages", "none"]]);
    by("statement").textContent = site.statement.join("\n");
    by("foot").textContent = `${site.folder}. This page only reads; closing it changes nothing.`;
  }

  const draw = throttled(() => {
    if (!site) return;
    if (site.waiting) { by("title").textContent = "Starting"; by("state").textContent = site.waiting; return; }
    drawHeader(); drawMembers(); drawCharts(); drawResults(); drawRest();
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }, 300);
  by("statement").after(copyButton(by("statement"), () => by("statement").textContent));
  follow(take);
})();
