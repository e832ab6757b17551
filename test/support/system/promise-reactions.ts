/**
 * Runs `count` promise reactions of in-memory work. Unlike `flushEventLoop`, it also returns while a loop of promises
 * never yields to the event loop.
 */
export async function runPromiseReactions(count = 500): Promise<void> {
  for (let done = 0; done < count; done++) await Promise.resolve();
}
