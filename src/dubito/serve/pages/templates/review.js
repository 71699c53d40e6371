"use strict";
// Keys press the buttons that show them; without a script the buttons do by themselves.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const key = event.key.toLowerCase();
  const button = Array.from(document.querySelectorAll("button[data-key]")).find((one) => one.dataset.key === key);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
});
// One answer a page: a second press must not answer the next row unseen.
document.addEventListener("submit", () => {
  setTimeout(() => document.querySelectorAll("button[data-key]").forEach((one) => { one.disabled = true; }));
});
// What is there from the start is not read out: say it once more, and begin at the row.
const said = document.getElementById("said");
const words = said.innerHTML;
said.textContent = "";
setTimeout(() => { said.innerHTML = words; }, 100);
document.getElementById("row").focus({ preventScroll: true });
