// Loaded into a server under test: on SIGUSR2 it collects garbage and writes the size of V8's heap to a file.
const { renameSync, writeFileSync } = require("node:fs");
const { getHeapStatistics } = require("node:v8");

process.on("SIGUSR2", () => {
  global.gc();
  // Finalizers run between two collections, and release what the first one found.
  setImmediate(() => {
    global.gc();
    const { total_physical_size: resident, used_heap_size: used } = getHeapStatistics();
    const file = process.env.PROCWIRE_HEAP_FILE;
    writeFileSync(`${file}.new`, JSON.stringify({ resident, used }));
    renameSync(`${file}.new`, file);
  });
});
