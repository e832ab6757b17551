/** Runs the event loop until all pending work has finished that needs no further event, such as messages in memory. */
export async function flushEventLoop(): Promise<void> {
  for (let tick = 0; tick < 12; tick++) await new Promise((resolve) => setImmediate(resolve));
}
