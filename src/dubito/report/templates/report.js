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
  const decisions = document.querySelector("[data-decisions]");
  if (!holder || !decisions) return;
  const data = JSON.parse(holder.textContent);
  const unpack = (packed) => {
    if (packed === null) return null;
    const bytes = Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0));
    return packed.type === "u1" ? bytes : packed.type === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  };
  const n = data.n, nActions = data.costs.length, nClasses = data.costs[0].length, reject = data.reject;
  const probabilities = unpack(data.probabilities), doubt = unpack(data.doubt), decided = unpack(data.decided);
  const label = unpack(data.label), truth = unpack(data.truth), weight = unpack(data.weight);
  const MARGIN = 1e-9, TIE = 1e-12, STEPS = 1000;
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
  const byThreshold = (actions, theta) => (i) => (doubt[i] >= 1 - theta - MARGIN ? reject : actions[i]);

  // All thresholds at once: cumulative sums over rows sorted by uncertainty.
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => doubt[a] - doubt[b]);
  const curve = (costs, actions) => {
    let cost = 0, kept = 0, place = 0;
    for (let i = 0; i < n; i++) cost += weight[i] * realizedCost(costs, i, reject);
    const points = [];
    for (let step = STEPS; step >= 0; step--) {
      const limit = 1 - step / STEPS - MARGIN;
      for (; place < n && doubt[order[place]] < limit; place++) {
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
  const percent = (value, digits) => `${(100 * value).toFixed(digits)}\u00a0%`;
  const number = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const costText = (value) => number(value, Math.abs(value) < 100 ? 2 : Math.abs(value) < 1000 ? 1 : 0);

  // While an input is not a number, its last valid value is used.
  const state = { costs: data.costs, theta: Number(exact.value), actions: null, results: {} };
  const validated = (input, isValid) => { input.setAttribute("aria-invalid", String(!isValid)); return isValid; };
  const numberIn = (input) => (input.value.trim() === "" ? NaN : Number(input.value));
  const reportInvalid = () => {
    const messages = [];
    if (inputs.some((input) => input.getAttribute("aria-invalid") === "true")) messages.push("A cost must be a number; until then the last valid cost is used.");
    if (exact.getAttribute("aria-invalid") === "true") messages.push("The threshold must be a number from 0 to 1; until then the last valid one is used.");
    message.textContent = messages.join(" ");
  };
  const readCosts = () => {
    const costs = state.costs.map((row) => row.slice());
    for (const input of inputs) {
      const value = numberIn(input);
      if (validated(input, Number.isFinite(value))) costs[input.dataset.action][input.dataset.class] = value;
    }
    return costs;
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
  const scaleOf = (svg) => {
    const [left, right, bottom, top] = svg.dataset.box.split(" ").map(Number);
    const low = Number(svg.dataset.low), high = Number(svg.dataset.high);
    return { x: (v) => left + v * (right - left), y: (v) => bottom + (Math.min(Math.max(v, low), high) - low) / (high - low) * (top - bottom) };
  };
  const mark = (svg, name, x, y) => {
    const circle = svg.querySelector(`[data-mark="${name}"]`), scale = scaleOf(svg);
    circle.setAttribute("cx", scale.x(x).toFixed(1));
    circle.setAttribute("cy", scale.y(y).toFixed(1));
    circle.removeAttribute("hidden");
  };
  const ticksBetween = (low, high) => {
    const span = high - low > 1e-6 * Math.max(Math.abs(low), Math.abs(high)) ? high - low : Math.max(Math.abs(high), 1);
    const size = 10 ** Math.floor(Math.log10(span / 4));
    const step = [1, 2, 5, 10].map((by) => size * by).find((by) => span / by <= 6);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil((low + span) / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
  };
  const drawCosts = (points) => {
    const svg = charts.cost, values = points.map((point) => point.cost);
    const ticks = ticksBetween(Math.min(0, ...values), Math.max(0, ...values));
    svg.dataset.low = String(ticks[0]);
    svg.dataset.high = String(ticks[ticks.length - 1]);
    const scale = scaleOf(svg);
    svg.querySelector(".line").setAttribute("d", "M" + points.map((point) => `${scale.x(point.reviewed).toFixed(1)} ${scale.y(point.cost).toFixed(1)}`).join("L"));
    const lines = all(".grid", svg), texts = all(".tick.end", svg), [left, right] = svg.dataset.box.split(" ").map(Number);
    const grow = (list, template) => { while (list.length < ticks.length) { const twin = template.cloneNode(true); template.after(twin); list.push(twin); } };
    grow(lines, lines[0]);
    grow(texts, texts[0]);
    lines.forEach((line, k) => { line.toggleAttribute("hidden", k >= ticks.length); if (k < ticks.length) line.setAttribute("d", `M${left} ${scale.y(ticks[k]).toFixed(1)}H${right}`); });
    texts.forEach((text, k) => {
      text.toggleAttribute("hidden", k >= ticks.length);
      if (k < ticks.length) { text.textContent = Number(ticks[k].toPrecision(4)).toLocaleString("en-US"); text.setAttribute("y", (scale.y(ticks[k]) + 4).toFixed(1)); }
    });
  };

  const markAll = () => {
    const best = Object.entries(state.results).reduce((a, b) => (b[1].cost < a[1].cost - 1e-9 ? b : a))[0];
    for (const row of all("[data-policy]", decisions)) {
      row.classList.toggle("best", row.dataset.policy === best);
      row.querySelector(".best-tag").hidden = row.dataset.policy !== best;
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
    const costs = state.costs = readCosts(), actions = state.actions = optimalActions(costs, acting, false);
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
