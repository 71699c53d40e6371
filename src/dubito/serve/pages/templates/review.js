"use strict";
const find = document.getElementById("find");
// A key presses the button that shows it.
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
document.getElementById("row").focus({ preventScroll: true });
