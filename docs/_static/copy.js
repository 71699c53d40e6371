// A button that copies a block of code, without the prompts and the output of a console.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll(".bd-article div.highlight")) {
    const pre = block.querySelector("pre");
    if (!pre || !navigator.clipboard || block.closest(".sphx-glr-script-out, .highlight-none, .highlight-text")) continue;
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const lines = pre.textContent.trimEnd().split("\n");
      const prompt = /^(\$|>>>|\.\.\.) ?/;
      const typed = lines.filter((line) => prompt.test(line));
      const text = typed.length ? typed.map((line) => line.replace(prompt, "")) : lines;
      await navigator.clipboard.writeText(text.join("\n") + "\n");
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
});
