// Texts of the charts that end right of what is seen.
const cut = [];
function look(mark, left, right, name) {
  for (const item of mark.items || []) {
    if (mark.marktype === "text" && item.text && item.opacity !== 0 && left + item.bounds.x2 > right + 1)
      cut.push(`${name}: ${item.text}`);
    for (const inner of item.items || []) look(inner, left + (item.x || 0), right, name);
  }
}
for (const [name, view] of Object.entries(views))
  look(view.scenegraph().root, view.origin()[0], view.container().clientWidth, name);
return cut;
