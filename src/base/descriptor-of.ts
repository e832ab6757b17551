/** Returns the descriptor of an open socket or pipe of Node, which has no public name; null if there is none. */
export function descriptorOf(stream: object): number | null {
  const fd = (stream as { _handle?: { fd?: number } | null })._handle?.fd;
  return fd === undefined || fd < 0 ? null : fd;
}
