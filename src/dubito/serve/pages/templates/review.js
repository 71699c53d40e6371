"use strict";
const find = document.getElementById("find");
// Keys press the buttons that show them; without a script the buttons do by themselves.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const key = event.key.toLowerCase();
  if (key === "/" && find) { event.preventDefault(); find.focus(); return; }
  const button = Array.from(document.querySelectorAll("button[data-key]")).find((one) => one.dataset.key === key);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
});
// One answer a page: a second press must not answer the next row unseen.
document.addEventListener("submit", () => {
  setTimeout(() => document.querySelectorAll("button").forEach((one) => { one.disabled = true; }));
});
// More classes than keys: a few letters leave those that have them in their names.
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
// What is there from the start is not read out: say it once more, and begin at the row.
const said = document.getElementById("said");
const words = said.innerHTML;
said.textContent = "";
setTimeout(() => { said.innerHTML = words; }, 100);
document.getElementById("row").focus({ preventScroll: true });
