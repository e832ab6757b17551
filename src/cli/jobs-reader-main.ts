/** The thread that reads jobs for a server's console: what a large job takes to count must not hold the server up. */
import { parentPort, workerData } from "node:worker_threads";
import { messageOf } from "../base/error-message.ts";
import { PACKAGE_PRICES } from "../fanout/cost/price-table.ts";
import type { JobStore } from "../fanout/ledger/job-ledger.ts";
import { JobViews } from "../fanout/view/jobs-service.ts";
import type { JobsPlace, NumberedAnswer, NumberedQuestion } from "./support/jobs-reader.ts";

/** A page that waits is asked to try again rather than left waiting. */
const OUTAGE_PATIENCE_MS = 5_000;

const place: JobsPlace = workerData;
let views: Promise<JobViews> | null = null;

parentPort?.on("message", ({ number, question }: NumberedQuestion) => {
  views ??= open();
  void views
    .then((opened) => opened.answer(question))
    .catch((error: unknown) => {
      // A database that is away now may be there at the next question.
      views = null;
      return { type: "refused" as const, reason: messageOf(error) };
    })
    .then((answer) => parentPort?.postMessage({ number, answer } satisfies NumberedAnswer));
});

async function open(): Promise<JobViews> {
  return new JobViews({ store: await openStore(), prices: PACKAGE_PRICES, jobsHome: place.folder });
}

async function openStore(): Promise<JobStore> {
  const options = { outagePatienceMs: OUTAGE_PATIENCE_MS };
  if (place.databaseUrl !== undefined) {
    const { PostgresStore } = await import("../fanout/ledger/postgres/postgres-store.ts");
    return PostgresStore.open({ ...options, databaseUrl: place.databaseUrl });
  }
  const { SqliteStore } = await import("../fanout/ledger/sqlite/sqlite-store.ts");
  return new SqliteStore(place.folder, options);
}
