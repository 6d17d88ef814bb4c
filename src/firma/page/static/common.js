// What the pages share: the stream of events, words for numbers, tables.
"use strict";
const FirmaPage = (() => {
  const {el} = FirmaCharts;
  const by = name => document.getElementById(name);

  // Follow the server; `take` is given every message. The browser reconnects by itself, and then is told everything again.
  function follow(take) {
    const stream = new EventSource("/events");
    stream.onopen = () => { by("lost").hidden = true; };
    stream.onmessage = event => { take(JSON.parse(event.data)); };
    stream.onerror = () => {
      by("lost").hidden = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { stream.close(); follow(take); }, 2000);
    };
    addEventListener("pagehide", () => stream.close());
  }

  // `draw` at most every `pause` ms, however often it is asked for.
  function throttled(draw, pause) {
    let timer = null, last = 0;
    return () => {
      if (timer !== null) return;
      timer = setTimeout(() => { timer = null; last = performance.now(); draw(); }, Math.max(0, last + pause - performance.now()));
    };
  }

  const duration = seconds => seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  function bytes(count) {
    for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (count >= size) return `${(count / size).toFixed(count >= 100 * size ? 0 : 1)} ${unit}`;
    return `${count} B`;
  }
  const several = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

  // Rows of a description list; values are text.
  function facts(node, pairs) {
    node.replaceChildren(...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
  }
  function tiles(node, pairs) {
    node.replaceChildren(...pairs.map(([name, value]) => el("div", {}, el("b", {}, value), el("span", {}, name))));
  }

  // A button that copies text, or selects it where the browser does not allow that.
  function copyButton(node, text) {
    const button = el("button", {type: "button"}, "Copy");
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text()); button.textContent = "Copied"; } catch {
        const range = document.createRange(); range.selectNodeContents(node);
        getSelection().removeAllRanges(); getSelection().addRange(range); button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    return button;
  }

  return {by, follow, throttled, duration, bytes, several, facts, tiles, copyButton};
})();
