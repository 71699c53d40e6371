"use strict";
const find = document.getElementById("find");
const number = document.getElementById("number");
// A key presses the button that shows it.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  // An empty field of a number takes no letters, so they stay shortcuts.
  const isFree = event.target.type === "radio" || (event.target === number && !number.value);
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && !isFree) return;
  const key = event.key.toLowerCase();
  if (answerLabel(key)) { event.preventDefault(); return; }
  if (key === "/" && find) { event.preventDefault(); find.focus(); return; }
  const button = Array.from(document.querySelectorAll("button[data-key]")).find((one) => one.dataset.key === key);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
});
// Several labels: a key answers the current one, and the next one to answer becomes current.
const form = document.getElementById("labels");
const labels = form ? Array.from(form.querySelectorAll("fieldset.label")) : [];
const isAnswered = (label) => label.querySelector("input:checked") !== null;
const isNeeded = (label) => label.querySelector("input:required") !== null && !isAnswered(label);
let current = 0;
function showCurrent() {
  labels.forEach((label, k) => label.classList.toggle("current", k === current));
  const left = labels.filter(isNeeded).length;
  document.getElementById("left").textContent = left ? `${left} ${left === 1 ? "label" : "labels"} left` : "All labels answered";
}
function saveDraft() {
  const given = labels.map((label) => label.querySelector("input:checked")).filter(Boolean);
  sessionStorage.setItem(form.dataset.draft, JSON.stringify(given.map((input) => [input.name, input.value])));
}
function answerLabel(key) {
  const input = labels.length && /^[ynu]$/.test(key) && labels[current].querySelector(`[data-answer="${key}"]`);
  if (!input) return false;
  input.checked = true;
  saveDraft();
  const rest = labels.findIndex((label, k) => k > current && isNeeded(label));
  const next = rest >= 0 ? rest : labels.findIndex(isNeeded);
  if (next >= 0) (labels[next].querySelector("input:checked") || labels[next].querySelector("input")).focus();
  else { document.getElementById("save").focus(); showCurrent(); }
  return true;
}
if (form) {
  // Answers survive a reload and an undo, in this tab.
  for (const [name, value] of JSON.parse(sessionStorage.getItem(form.dataset.draft) || "[]")) {
    const input = labels.flatMap((label) => Array.from(label.querySelectorAll("input"))).find((one) => one.name === name && one.value === value);
    if (input) input.checked = true;
  }
  form.addEventListener("change", () => { saveDraft(); showCurrent(); });
  form.addEventListener("focusin", (event) => {
    const label = event.target.closest("fieldset.label");
    if (label) { current = labels.indexOf(label); showCurrent(); }
  });
  current = Math.max(labels.findIndex(isNeeded), 0);
  showCurrent();
}
// One answer per page: a second key press must not answer the next row unseen.
document.addEventListener("submit", () => {
  setTimeout(() => document.querySelectorAll("button").forEach((one) => { one.disabled = true; }));
});
// More classes than keys: search by name.
if (find) {
  const choices = Array.from(document.querySelectorAll("button.choice"));
  const narrow = () => {
    const wanted = find.value.trim().toLowerCase();
    choices.forEach((one) => { one.hidden = !one.querySelector(".name").textContent.toLowerCase().includes(wanted); });
  };
  find.closest("p").hidden = false;
  find.addEventListener("input", narrow);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { find.value = ""; narrow(); document.getElementById("row").focus(); }
    if (event.key !== "Enter") return;
    event.preventDefault();
    const named = (one) => one.querySelector(".name").textContent.toLowerCase() === find.value.trim().toLowerCase();
    const first = choices.find(named) || choices.find((one) => !one.hidden);
    if (first && find.value.trim()) first.click();
  });
}
// Screen readers do not announce initial content: insert it again, and focus the row.
const announcement = document.getElementById("status");
const content = announcement.innerHTML;
announcement.textContent = "";
setTimeout(() => { announcement.innerHTML = content; }, 100);
(number || document.getElementById("row")).focus({ preventScroll: true });
