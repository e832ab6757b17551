/** Opens the page of a clicked table row, unless the click was on a control or selected text. */
export function followRow(event: MouseEvent, href: string): void {
  const isOnControl = event.target instanceof Element && event.target.closest("a, button, input, label") !== null;
  if (isOnControl || getSelection()?.isCollapsed === false) return;
  location.hash = href;
}
