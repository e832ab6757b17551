/** Style and script of the HTML report. */

export const REPORT_STYLE = `
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1em; }
dt { color: #666; } dd { margin: 0; white-space: pre-wrap; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { border: 1px solid #ddd; padding: .2em .5em; text-align: left; vertical-align: top; }
#rows td { max-width: 40em; overflow-wrap: anywhere; white-space: pre-wrap; }
tr[data-status=failed] { background: #fdecea; }
label { margin-right: 1em; }`;

/** Hides the rows that do not match the filters. The page is readable without it. */
export const REPORT_SCRIPT = `
const rows = [...document.querySelectorAll("#rows tbody tr")];
const [status, failure, text, count] = ["status", "class", "text", "count"].map((id) => document.getElementById(id));
function filter() {
  const wanted = text.value.toLowerCase();
  let shown = 0;
  for (const row of rows) {
    row.hidden = (status.value !== "" && row.dataset.status !== status.value)
      || (failure.value !== "" && row.dataset.class !== failure.value)
      || (wanted !== "" && !row.textContent.toLowerCase().includes(wanted));
    if (!row.hidden) shown++;
  }
  count.textContent = shown + " of " + rows.length + " rows";
}
for (const control of [status, failure, text]) control.addEventListener("input", filter);
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
filter();`;
