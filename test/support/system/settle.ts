/** Runs the event loop until all pending work has finished that needs no further event, such as messages in memory. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 12; turn++) await new Promise((resolve) => setImmediate(resolve));
}
