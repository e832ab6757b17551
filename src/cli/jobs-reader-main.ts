/** The thread that reads jobs for a server's console: what a large job takes to count must not hold the server up. */
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../base/error-message.ts";
import { PACKAGE_PRICES } from "../fanout/cost/price-table.ts";
import type { JobStore } from "../fanout/ledger/job-ledger.ts";
import { JobsQueryService } from "../fanout/view/jobs-service.ts";
import type { JobsLocation, JobsThreadRequest, JobsThreadResponse } from "./support/jobs-reader.ts";

/** Maximum wait for an unreachable database, before the page shows an error. */
const OUTAGE_TIMEOUT_MS = 5_000;

const place: JobsLocation = workerData;
let views: Promise<JobsQueryService> | null = null;

parentPort?.on("message", ({ number, question }: JobsThreadRequest) => {
  views ??= open();
  void views
    .then((opened) => opened.handle(question))
    .catch((error: unknown) => {
      // A database that is away now may be there at the next question.
      views = null;
      return { type: "refused" as const, reason: errorMessage(error) };
    })
    .then((answer) => parentPort?.postMessage({ number, answer } satisfies JobsThreadResponse));
});

async function open(): Promise<JobsQueryService> {
  return new JobsQueryService({ store: await openStore(), prices: PACKAGE_PRICES, jobsHome: place.folder });
}

async function openStore(): Promise<JobStore> {
  const options = { outageTimeoutMs: OUTAGE_TIMEOUT_MS };
  if (place.databaseUrl !== undefined) {
    const { PostgresStore } = await import("../fanout/ledger/postgres/postgres-store.ts");
    return PostgresStore.open({ ...options, databaseUrl: place.databaseUrl });
  }
  const { SqliteStore } = await import("../fanout/ledger/sqlite/sqlite-store.ts");
  return new SqliteStore(place.folder, options);
}
