import { suite } from "node:test";
import { killAtRandomPoints } from "./killed-runs.ts";
import { killOneOfThreeWorkers } from "./killed-workers.ts";

// Side by side, because one mostly waits for an engine to notice that somebody is gone.
suite("what survives kill -9", { concurrency: 2 }, () => {
  killOneOfThreeWorkers();
  killAtRandomPoints();
});
