import { suite } from "node:test";
import { killAtRandomPoints } from "./killed-runs.ts";
import { killOneOfThreeWorkers } from "./killed-workers.ts";

// Concurrently, because one mostly waits for the engine to notice that a worker is gone.
suite("jobs after kill -9", { concurrency: 2 }, () => {
  killOneOfThreeWorkers();
  killAtRandomPoints();
});
