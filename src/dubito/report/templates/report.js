"use strict";
(() => {
  const all = (query, root = document) => Array.from(root.querySelectorAll(query));

  // Light or dark: follows the system until the reader chooses.
  const toggle = document.querySelector("[data-toggle]");
  const remembered = (() => { try { return localStorage.getItem("dubito-theme"); } catch { return null; } })();
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light");
  const nameToggle = () => { toggle.textContent = theme() === "dark" ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Switch to ${theme() === "dark" ? "light" : "dark"} colors`); };
  if (remembered === "dark" || remembered === "light") document.documentElement.dataset.theme = remembered;
  toggle.hidden = false;
  nameToggle();
  systemDark.addEventListener("change", nameToggle);
  toggle.addEventListener("click", () => {
    document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("dubito-theme", theme()); } catch { /* a local file may have no storage */ }
    nameToggle();
  });

  // A menu selects one of several figures.
  for (const select of all("[data-choice]")) {
    const field = select.closest(".field");
    field.hidden = false;
    select.addEventListener("change", () => {
      for (const option of all("[data-option]", select.closest(".choice"))) option.hidden = option.dataset.option !== select.value;
    });
  }

  const holder = document.getElementById("data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const unpack = (packed) => {
    if (packed === null) return null;
    const bytes = Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0));
    return packed.type === "u1" ? bytes : packed.type === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  };
  const TIE = 1e-12;
  const percent = (value, digits) => (value === null ? "–" : `${(100 * value).toFixed(digits)}\u00a0%`);
  const number = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const costText = (value, size = Math.abs(value)) => number(value, size < 100 ? 2 : size < 1000 ? 1 : 0);
  const plain = (value) => (Math.abs(value) < 10000 ? Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 12 }) : number(value, 0));

  // While an input is not a number, its last valid value is used.
  const validated = (input, isValid) => { input.setAttribute("aria-invalid", String(!isValid)); return isValid; };
  const numberIn = (input) => (input.value.trim() === "" ? NaN : Number(input.value));
  const isInvalid = (input) => input.getAttribute("aria-invalid") === "true";
  const costsIn = (inputs, last) => {
    const costs = last.map((row) => row.slice());
    for (const input of inputs) {
      const value = numberIn(input);
      if (validated(input, Number.isFinite(value))) costs[input.dataset.action][input.dataset.class] = value;
    }
    return costs;
  };
  const WRONG_COST = "A cost must be a number; until then the last valid cost is used.";
  const wrongThreshold = (range) => `The threshold must be a number from ${range}; until then the last valid one is used.`;

  // Where values lie in a chart, and charts whose axis grows with what they show.
  const scaleOf = (svg) => {
    const [left, right, bottom, top] = svg.dataset.box.split(" ").map(Number), [first, last] = svg.dataset.x.split(" ").map(Number);
    const low = Number(svg.dataset.low), high = Number(svg.dataset.high);
    const inside = (v, from, to) => (Math.min(Math.max(v, from), to) - from) / (to - from);
    return {
      first, last, left, right, bottom, top,
      x: (v) => left + inside(v, first, last) * (right - left),
      y: (v) => bottom + inside(v, low, high) * (top - bottom),
      value: (y) => low + (y - bottom) / (top - bottom) * (high - low),
    };
  };
  const mark = (svg, name, x, y) => {
    const circle = svg.querySelector(`[data-mark="${name}"]`), scale = scaleOf(svg);
    circle.setAttribute("cx", scale.x(x).toFixed(1));
    circle.setAttribute("cy", scale.y(y).toFixed(1));
    circle.removeAttribute("hidden");
  };
  const pathOf = (svg, points) => {
    const scale = scaleOf(svg);
    return "M" + points.map(([x, y]) => `${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`).join("L");
  };
  const ticksBetween = (low, high) => {
    const span = high - low > 1e-6 * Math.max(Math.abs(low), Math.abs(high)) ? high - low : Math.max(Math.abs(high), 1);
    const size = 10 ** Math.floor(Math.log10(span / 4));
    const step = [1, 2, 5, 10].map((by) => size * by).find((by) => span / by <= 6);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil((low + span) / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
  };
  const rescale = (svg, values, text) => {
    const ticks = ticksBetween(Math.min(0, ...values), Math.max(0, ...values));
    svg.dataset.low = String(ticks[0]);
    svg.dataset.high = String(ticks[ticks.length - 1]);
    const scale = scaleOf(svg), lines = all(".grid", svg), texts = all(".tick.end", svg);
    const grow = (list, template) => { while (list.length < ticks.length) { const twin = template.cloneNode(true); template.after(twin); list.push(twin); } };
    grow(lines, lines[0]);
    grow(texts, texts[0]);
    lines.forEach((line, k) => { line.toggleAttribute("hidden", k >= ticks.length); if (k < ticks.length) line.setAttribute("d", `M${scale.left} ${scale.y(ticks[k]).toFixed(1)}H${scale.right}`); });
    texts.forEach((tick, k) => {
      tick.toggleAttribute("hidden", k >= ticks.length);
      if (k < ticks.length) { tick.textContent = text(Number(ticks[k].toPrecision(4))); tick.setAttribute("y", (scale.y(ticks[k]) + 4).toFixed(1)); }
    });
  };

  // Two classes: actions by thresholds of P(positive).
  const thresholdPanel = ({ p: packed, column, reject, names, ...given }) => {
    const panel = document.querySelector("[data-thresholds]"), PER = 10000, SMALLEST = 1e-9, N_GRID = 200;
    const p = unpack(packed), weight = unpack(given.weight), positive = unpack(given.positive), n = p.length;
    const inputs = all(".editor input[data-action]"), message = panel.querySelector("[data-message]"), fields = all("[data-limit]", panel);
    const rates = document.querySelector("#rates-chart svg"), costs = document.querySelector("#threshold-cost-chart svg");
    const rowsBelow = new Float64Array(n + 1), positivesBelow = new Float64Array(n + 1);
    for (let i = 0; i < n; i++) { rowsBelow[i + 1] = rowsBelow[i] + weight[i]; positivesBelow[i + 1] = positivesBelow[i] + positive[i]; }
    const total = rowsBelow[n];
    const nBelow = (limit) => { let low = 0, high = n; while (low < high) { const middle = (low + high) >> 1; if (p[middle] < limit) low = middle + 1; else high = middle; } return low; };
    const logOdds = (value) => { const inside = Math.min(Math.max(value, 1e-6), 1 - 1e-6); return Math.log(inside / (1 - inside)); };
    const logistic = (odds) => 1 / (1 + Math.exp(-odds));
    const rounded = (value) => (value <= 0.5 ? Number(value.toPrecision(3)) : Number((1 - Number((1 - value).toPrecision(3))).toFixed(12)));
    const ratio = (part, whole) => (whole > 0 ? part / whole : null);

    // As in Python: expected costs are lines over P(positive), of which the lowest wins.
    const optimal = (table) => {
      const start = table.map((row) => row[1 - column]), slope = table.map((row, a) => row[column] - start[a]);
      const smallest = SMALLEST * (Math.max(...table.flat().map(Math.abs)) || 1);
      const order = names.map((_, a) => a).filter((a) => a !== reject);
      if (reject !== null) order.unshift(reject);
      const actions = [], thresholds = [];
      for (let at = 0; at < 1;) {
        const heights = start.map((height, a) => height + slope[a] * at), lowest = Math.min(...heights);
        const best = order.filter((a) => heights[a] <= lowest + smallest).reduce((a, b) => (slope[b] < slope[a] ? b : a));
        let end = 1;
        slope.forEach((one, a) => { if (one < slope[best] - smallest) end = Math.min(end, at + Math.max(heights[a] - heights[best], 0) / (slope[best] - one)); });
        if (end - at > SMALLEST || !actions.length) { if (actions.length) thresholds.push(at); actions.push(best); }
        at = Math.max(end, at + SMALLEST);
      }
      return { actions, thresholds };
    };
    const outcome = (thresholds) => {
      const ends = [0, ...thresholds.map(nBelow), n];
      const parts = state.actions.map((a, k) => {
        const hits = positivesBelow[ends[k + 1]] - positivesBelow[ends[k]], rows = rowsBelow[ends[k + 1]] - rowsBelow[ends[k]];
        return { rows: rows / total, positive: hits / total, negative: (rows - hits) / total, paid: ((rows - hits) * state.costs[a][1 - column] + hits * state.costs[a][column]) / total };
      });
      const confusions = thresholds.map((threshold, k) => {
        const selected = total - rowsBelow[ends[k + 1]], hits = positivesBelow[n] - positivesBelow[ends[k + 1]];
        return { threshold, precision: ratio(hits, selected), recall: ratio(hits, positivesBelow[n]), false_positive_rate: ratio(selected - hits, total - positivesBelow[n]), selection_rate: selected / total };
      });
      return { parts, confusions, cost: parts.reduce((sum, part) => sum + part.paid, 0) };
    };

    const state = { costs: given.costs, actions: [], thresholds: [], best: [], moved: 0 };
    const put = (cell, text, value) => { cell.textContent = text; if (value !== undefined) cell.dataset.value = String(value); };
    const threeDigits = (value) => String(Number(value.toPrecision(3)));

    // A slider for each threshold, made of the dot that the chart came with.
    const dot = rates.querySelector('[data-mark="yours"]');
    rates.setAttribute("role", "group");
    const sliders = fields.map((_, k) => {
      const make = (kind, attributes) => { const one = document.createElementNS("http://www.w3.org/2000/svg", kind); for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value); return one; };
      const { bottom, top } = scaleOf(rates), grip = dot.cloneNode();
      grip.removeAttribute("hidden");
      const slider = make("g", { class: "grip", role: "slider", tabindex: "0", "data-slider": k, "aria-valuemin": 0, "aria-valuemax": 1 });
      slider.append(make("rect", { class: "reach", x: -14, y: top, width: 28, height: bottom - top }), make("path", { class: "line yours", d: `M0 ${bottom}V${top}` }), grip);
      dot.before(slider);
      const place = (event) => { const box = rates.getBoundingClientRect(), { left, right, first, last } = scaleOf(rates); return first + ((event.clientX - box.left) * 400 / box.width - left) / (right - left) * (last - first); };
      slider.addEventListener("pointerdown", (event) => { slider.setPointerCapture(event.pointerId); slider.focus(); event.preventDefault(); select(k); });
      slider.addEventListener("pointermove", (event) => { if (slider.hasPointerCapture(event.pointerId)) move(k, rounded(logistic(place(event)))); });
      slider.addEventListener("focus", () => select(k));
      slider.addEventListener("keydown", (event) => {
        const { first, last } = scaleOf(rates), step = (last - first) / N_GRID;
        const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
        if (by === undefined) return;
        event.preventDefault();
        move(k, rounded(logistic(Math.min(Math.max(logOdds(state.thresholds[k]) + by * step, first), last))));
      });
      return slider;
    });
    dot.remove();

    const select = (k) => { if (state.moved !== k) { state.moved = k; draw(); } };
    const move = (k, value) => {
      const [low, high] = [state.thresholds[k - 1] ?? 0, state.thresholds[k + 1] ?? 1];
      state.thresholds[k] = Math.min(Math.max(value, low), high);
      state.moved = k;
      for (const field of fields) validated(field.querySelector("input"), true);
      draw();
    };
    const draw = () => {
      const { thresholds, actions, moved } = state, yours = outcome(thresholds), best = outcome(state.best);
      const actionName = (k) => actions.slice(k + 1).map((a) => names[a]).join(" or ");
      const cards = (one) => {
        const { precision, recall } = one.confusions[moved] ?? { precision: null, recall: null };
        return { cost: [plain(one.cost), one.cost], total: [costText(PER * one.cost), PER * one.cost], precision: [percent(precision, 2), precision], recall: [percent(recall, 2), recall] };
      };
      for (const [key, [text, value]] of Object.entries(cards(yours))) put(panel.querySelector(`[data-out="${key}"]`), text, value);
      for (const [key, [text, value]] of Object.entries(cards(best))) put(panel.querySelector(`[data-best="${key}"]`), text, value);
      for (const [key, title] of [["precision", "Precision"], ["recall", "Recall"]]) panel.querySelector(`[data-title="${key}"]`).textContent = `${title} of “${actionName(moved)}”`;
      const most = Math.max(...yours.parts.map((part) => PER * Math.abs(part.paid)));
      for (const row of all("[data-taken]")) {
        const k = actions.indexOf(Number(row.dataset.taken)), part = yours.parts[k] ?? { rows: 0, positive: 0, negative: 0, paid: 0 };
        const ends = [0, ...thresholds, 1];
        put(row.querySelector('[data-cell="between"]'), k < 0 ? "–" : `${threeDigits(ends[k])} to ${threeDigits(ends[k + 1])}`);
        for (const key of ["negative", "positive", "rows"]) put(row.querySelector(`[data-cell="${key}"]`), number(PER * part[key], 0), part[key]);
        put(row.querySelector('[data-cell="paid"]'), costText(PER * part.paid, most), part.paid);
      }
      for (const row of all("[data-rates]")) {
        const k = Number(row.dataset.rates), one = yours.confusions[k];
        row.hidden = one === undefined;
        if (row.hidden) continue;
        put(row.querySelector('[data-cell="names"]'), actionName(k));
        put(row.querySelector('[data-cell="threshold"]'), threeDigits(one.threshold), one.threshold);
        for (const key of ["precision", "recall", "false_positive_rate", "selection_rate"]) put(row.querySelector(`[data-cell="${key}"]`), percent(one[key], 2), one[key]);
      }
      fields.forEach((field, k) => {
        field.hidden = k >= thresholds.length;
        sliders[k].toggleAttribute("hidden", field.hidden);
        if (field.hidden) return;
        const input = field.querySelector("input"), { x, y } = scaleOf(rates), one = yours.confusions[k];
        field.querySelector("[data-limit-name]").textContent = `“${names[actions[k + 1]]}” from P(${given.positive_class})`;
        if (document.activeElement !== input && !isInvalid(input)) input.value = String(Number(thresholds[k].toPrecision(4)));
        sliders[k].setAttribute("transform", `translate(${x(logOdds(thresholds[k])).toFixed(1)} 0)`);
        sliders[k].querySelector("circle").setAttribute("cy", y(one.recall ?? 0).toFixed(1));
        sliders[k].setAttribute("aria-label", `Threshold from which ${names[actions[k + 1]]} is taken`);
        sliders[k].setAttribute("aria-valuenow", String(thresholds[k]));
        sliders[k].setAttribute("aria-valuetext", `${threeDigits(thresholds[k])}: cost per row ${plain(yours.cost)}, precision ${percent(one.precision, 2)}, recall ${percent(one.recall, 2)}`);
      });
      if (!thresholds.length) return;
      const { first, last: end } = scaleOf(costs), low = moved ? logOdds(thresholds[moved - 1]) : first, high = moved + 1 < thresholds.length ? logOdds(thresholds[moved + 1]) : end;
      const curve = Array.from({ length: N_GRID + 1 }, (_, k) => {
        const odds = low + k / N_GRID * (high - low), tried = thresholds.slice();
        tried[moved] = logistic(odds);
        return [odds, PER * outcome(tried).cost];
      });
      rescale(costs, [...curve.map(([, y]) => y), PER * yours.cost, PER * best.cost], (value) => value.toLocaleString("en-US"));
      costs.querySelector(".line").setAttribute("d", pathOf(costs, curve));
      mark(costs, "yours", logOdds(thresholds[moved]), PER * yours.cost);
      mark(costs, "best", logOdds(state.best[moved]), PER * best.cost);
      const marks = all(".line.optimal", rates);
      while (marks.length < state.best.length) { const twin = marks[0].cloneNode(); marks[0].after(twin); marks.push(twin); }
      marks.forEach((line, k) => { line.toggleAttribute("hidden", k >= state.best.length); if (k < state.best.length) line.setAttribute("d", pathOf(rates, [[logOdds(state.best[k]), 0], [logOdds(state.best[k]), 1]])); });
    };
    const reportInvalid = () => {
      const messages = [];
      if (inputs.some(isInvalid)) messages.push(WRONG_COST);
      if (fields.some((field) => !field.hidden && isInvalid(field.querySelector("input")))) messages.push(wrongThreshold("0 to 1, in order"));
      message.textContent = messages.join(" ");
    };
    const restart = () => {
      state.costs = costsIn(inputs, state.costs);
      const found = optimal(state.costs);
      state.actions = found.actions;
      state.best = found.thresholds;
      state.thresholds = found.thresholds.slice();
      state.moved = 0;
      for (const field of fields) validated(field.querySelector("input"), true);
      draw();
      reportInvalid();
    };
    fields.forEach((field, k) => {
      const input = field.querySelector("input");
      input.addEventListener("input", () => {
        const value = numberIn(input), [low, high] = [state.thresholds[k - 1] ?? 0, state.thresholds[k + 1] ?? 1];
        if (validated(input, value >= low && value <= high)) { state.thresholds[k] = value; state.moved = k; draw(); }
        reportInvalid();
      });
    });
    for (const input of inputs) input.addEventListener("input", restart);
    panel.querySelector("[data-reset]").addEventListener("click", () => {
      for (const input of inputs) input.value = String(given.costs[input.dataset.action][input.dataset.class]);
      restart();
    });
    restart();
  };
  if (data.thresholds) thresholdPanel(data.thresholds);

  const decisions = document.querySelector("[data-decisions]");
  if (!decisions) return;
  const n = data.n, nActions = data.costs.length, nClasses = data.costs[0].length, reject = data.reject;
  const probabilities = unpack(data.probabilities), uncertainty = unpack(data.uncertainty), decided = unpack(data.decided);
  const label = unpack(data.label), truth = unpack(data.truth), weight = unpack(data.weight);
  const MARGIN = 1e-9, STEPS = 1000;
  const total = weight.reduce((sum, w) => sum + w, 0);

  // The same rules as in Python: probabilities sum to 1, costs are relative to the cheapest action of
  // a class, ties within 1e-12 go to the first action, and reject wins within 1e-9.
  const posteriors = Float64Array.from(probabilities);
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let k = 0; k < nClasses; k++) sum += posteriors[i * nClasses + k];
    for (let k = 0; k < nClasses; k++) posteriors[i * nClasses + k] /= sum;
  }
  const optimalActions = (costs, allowed, rejecting) => {
    const cheapest = costs[0].map((_, k) => Math.min(...allowed.map((a) => costs[a][k])));
    const action = new Int32Array(n), above = new Float64Array(nActions);
    for (let i = 0; i < n; i++) {
      let lowest = Infinity;
      for (const a of allowed) {
        let cost = 0;
        for (let k = 0; k < nClasses; k++) cost += (costs[a][k] - cheapest[k]) * posteriors[i * nClasses + k];
        above[a] = cost;
        if (cost < lowest) lowest = cost;
      }
      action[i] = allowed.find((a) => above[a] <= lowest * (1 + TIE));
      if (rejecting && above[reject] <= lowest + MARGIN) action[i] = reject;
    }
    return action;
  };
  const realizedCost = (costs, i, a) => {
    if (label !== null) return costs[a][label[i]];
    let cost = 0;
    for (let k = 0; k < nClasses; k++) cost += truth[i * nClasses + k] * costs[a][k];
    return cost;
  };
  const everyAction = data.costs.map((_, a) => a), acting = everyAction.filter((a) => a !== reject);

  // An action is wrong if another one would have cost less; a top label, if the answer is wrong.
  const wrongness = (costs) => {
    if (label === null) return (i) => truth[i * nClasses];
    const cheapest = costs[0].map((_, k) => Math.min(...acting.map((a) => costs[a][k])));
    return (i, a) => Number(costs[a][label[i]] > cheapest[label[i]] + TIE * Math.abs(cheapest[label[i]]));
  };
  const outcome = (costs, action) => {
    const isWrong = wrongness(costs);
    let kept = 0, wrong = 0, cost = 0;
    for (let i = 0; i < n; i++) {
      const a = action(i);
      if (a !== reject) { kept += weight[i]; wrong += weight[i] * isWrong(i, a); }
      cost += weight[i] * realizedCost(costs, i, a);
    }
    return { coverage: kept / total, risk: kept > 0 ? wrong / kept : 0, reviewed: 1000 * (1 - kept / total), cost: 1000 * cost / total };
  };
  const byThreshold = (actions, theta) => (i) => (uncertainty[i] >= 1 - theta - MARGIN ? reject : actions[i]);

  // All thresholds at once: cumulative sums over rows sorted by uncertainty.
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => uncertainty[a] - uncertainty[b]);
  const curve = (costs, actions) => {
    let cost = 0, kept = 0, place = 0;
    for (let i = 0; i < n; i++) cost += weight[i] * realizedCost(costs, i, reject);
    const points = [];
    for (let step = STEPS; step >= 0; step--) {
      const limit = 1 - step / STEPS - MARGIN;
      for (; place < n && uncertainty[order[place]] < limit; place++) {
        const i = order[place];
        kept += weight[i];
        cost += weight[i] * (realizedCost(costs, i, actions[i]) - realizedCost(costs, i, reject));
      }
      points.push({ threshold: step / STEPS, reviewed: 1 - kept / total, cost: 1000 * cost / total });
    }
    return points.reverse();
  };

  const slider = document.getElementById("threshold"), exact = document.getElementById("threshold-number");
  const inputs = all("input[data-action]", decisions), message = decisions.querySelector("[data-message]");
  const state = { costs: data.costs, theta: Number(exact.value), actions: null, results: {} };
  const reportInvalid = () => {
    const messages = inputs.some(isInvalid) ? [WRONG_COST] : [];
    if (isInvalid(exact)) messages.push(wrongThreshold("0 to 1"));
    message.textContent = messages.join(" ");
  };
  const readThreshold = () => {
    const value = numberIn(exact);
    return validated(exact, value >= 0 && value <= 1) ? value : state.theta;
  };
  const show = (key, result, threshold) => {
    const row = decisions.querySelector(`[data-policy="${key}"]`);
    const texts = { threshold: threshold === null ? "–" : threshold.toFixed(3), coverage: percent(result.coverage, 1), risk: percent(result.risk, 2), reviewed: number(result.reviewed, 1), cost: costText(result.cost) };
    for (const [name, text] of Object.entries(texts)) {
      const cell = row.querySelector(`[data-figure="${name}"]`);
      cell.textContent = text;
      if (name in result) cell.dataset.value = String(result[name]);
    }
    row.dataset.cost = String(result.cost);
  };

  const charts = { risk: document.querySelector("#risk-chart svg"), cost: document.querySelector("#cost-chart svg") };
  const drawCosts = (points) => {
    rescale(charts.cost, points.map((point) => point.cost), (value) => value.toLocaleString("en-US"));
    charts.cost.querySelector(".line").setAttribute("d", pathOf(charts.cost, points.map((point) => [point.reviewed, point.cost])));
  };

  const markAll = () => {
    const best = Object.entries(state.results).reduce((a, b) => (b[1].cost < a[1].cost - 1e-9 ? b : a))[0];
    for (const row of all("[data-policy]", decisions)) {
      row.classList.toggle("best", row.dataset.policy === best);
      row.querySelector(".best-tag").hidden = row.dataset.policy !== best;
    }
    // The axis of the risk grows with the dots: decisions may be wrong more often than classes.
    const values = Object.values(state.results).map((result) => result.risk);
    if (Math.max(...values) > Number(charts.risk.dataset.high)) {
      const old = scaleOf(charts.risk), shapes = all(".line, .dot", charts.risk);
      rescale(charts.risk, [...values, Number(charts.risk.dataset.high)], (value) => `${Number((100 * value).toPrecision(6))}\u00a0%`);
      const { y } = scaleOf(charts.risk), moved = (height) => y(old.value(Number(height))).toFixed(1);
      for (const one of shapes) {
        if (one.tagName === "circle") one.setAttribute("cy", moved(one.getAttribute("cy")));
        else one.setAttribute("d", one.getAttribute("d").replace(/([ML])([\d.]+) ([\d.]+)/g, (_, letter, x, height) => `${letter}${x} ${moved(height)}`));
      }
    }
    for (const [name, result] of [["best", state.results[best]], ["policy", state.results.policy], ["yours", state.results.yours]]) {
      if (result === undefined) continue;
      mark(charts.risk, name, result.coverage, result.risk);
      mark(charts.cost, name, 1 - result.coverage, result.cost);
    }
  };
  const recompute = () => {
    const theta = state.theta = readThreshold();
    state.results.yours = outcome(state.costs, byThreshold(state.actions, theta));
    show("yours", state.results.yours, theta);
    slider.setAttribute("aria-valuetext", `${theta.toFixed(3)}: ${percent(state.results.yours.coverage, 1)} coverage, ${percent(state.results.yours.risk, 2)} risk`);
    markAll();
    reportInvalid();
  };
  const recomputeCosts = () => {
    const costs = state.costs = costsIn(inputs, state.costs), actions = state.actions = optimalActions(costs, acting, false);
    const expected = optimalActions(costs, everyAction, true);
    const points = curve(costs, actions);
    const lowest = Math.min(...points.map((point) => point.cost));
    const cheapest = points.find((point) => point.cost <= lowest + 1e-9).threshold;
    const ways = {
      ...(decided === null ? {} : { policy: [(i) => decided[i], null] }),
      expected: [(i) => (expected[i] === reject ? reject : actions[i]), null],
      cheapest: [byThreshold(actions, cheapest), cheapest],
      none: [(i) => actions[i], null],
    };
    for (const [key, [action, threshold]] of Object.entries(ways)) show(key, state.results[key] = outcome(costs, action), threshold);
    drawCosts(points);
    recompute();
  };

  slider.addEventListener("input", () => { exact.value = slider.value; recompute(); });
  exact.addEventListener("input", () => { recompute(); slider.value = String(state.theta); });
  for (const input of inputs) input.addEventListener("input", recomputeCosts);
  decisions.querySelector("[data-reset]").addEventListener("click", () => {
    for (const input of inputs) input.value = String(data.costs[input.dataset.action][input.dataset.class]);
    recomputeCosts();
  });
  recomputeCosts();
})();
