// Texts of the page and of its charts that are smaller than 12 px.
const small = [...document.querySelectorAll("p, h2, h3, dt, dd, td, th, button, label, select, span, summary, footer")]
  .filter((e) => e.offsetParent && e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 12)
  .map((e) => e.textContent);
function look(mark, name) {
  for (const item of mark.items || []) {
    if (mark.marktype === "text" && item.text && item.fontSize < 12) small.push(`${name}: ${item.text}`);
    for (const inner of item.items || []) look(inner, name);
  }
}
for (const [name, view] of Object.entries(views)) look(view.scenegraph().root, name);
return small;
