import { type TokenUsage, usageFields } from "../../agent/token-usage.ts";
import { costInUsd, formatUsdExact, type Price } from "../cost/price-table.ts";
import { type AttemptRecord, type ItemRecord, rowNumber, type TranscriptEntry } from "../job.ts";

/** A row with its attempts and prompt. */
export interface ItemDetails {
  item: ItemRecord;
  attempts: readonly AttemptRecord[];
  /** Prompt of the row agent, rendered again, because the ledger does not store prompts. */
  prompt: { instructions: string; message: string };
  price: Price | null;
}

/** Formats a row for users. */
export function itemReport({ item, attempts, prompt, price }: ItemDetails): string {
  const lines = [
    `item      ${item.itemId} (row ${rowNumber(item.rowIndex)})`,
    `status    ${item.status}, ${item.attempts} attempts`,
  ];
  if (item.error !== null) lines.push(`error     ${item.errorClass}: ${item.error}`);
  lines.push(`row       ${JSON.stringify(item.row)}`);
  if (item.result !== null) lines.push(`result    ${item.result}`);
  lines.push(`tokens    ${usageText(item.usage)}`);
  if (price) lines.push(`cost      ${formatUsdExact(costInUsd(price, item.usage))}`);
  lines.push("", "--- instructions", prompt.instructions, "", "--- prompt", prompt.message);
  for (const [index, attempt] of attempts.entries()) {
    lines.push("", attemptTitle(attempt, index + 1), ...attempt.transcript.map(entryText));
  }
  return lines.join("\n");
}

/** Returns a row as JSON for programs. */
export function itemFields({ item, attempts, prompt, price }: ItemDetails): Record<string, unknown> {
  return {
    ...item,
    costUsd: price && costInUsd(price, item.usage),
    prompt,
    attemptRecords: attempts.map(({ usage, ...attempt }) => ({ ...attempt, usage: usageFields(usage) })),
  };
}

function attemptTitle(attempt: AttemptRecord, number: number): string {
  const { outcome, errorClass, message, startedAtMs, endedAtMs } = attempt;
  const duration = startedAtMs === null ? "" : `, ${((endedAtMs - startedAtMs) / 1000).toFixed(1)} s`;
  const reason = message === null ? "" : ` (${errorClass === null ? "" : `${errorClass}: `}${message})`;
  const used = outcome === "reused" ? "" : `, ${usageText(attempt.usage)}`;
  return `--- attempt ${number}, ended ${new Date(endedAtMs).toISOString()}: ${outcome}${reason}${duration}${used}`;
}

function usageText(usage: TokenUsage): string {
  return `${usage.inputTokens} in (${usage.cachedInputTokens} cached), ${usage.outputTokens} out`;
}

function entryText(entry: TranscriptEntry): string {
  switch (entry.type) {
    case "said":
    case "thought":
    case "refused":
      return `${entry.type}: ${entry.text}`;
    case "called":
      return `called ${entry.tool}: ${entry.arguments}`;
    case "returned":
      return `${entry.tool} ${entry.ok ? "returned" : "refused"}: ${entry.text}`;
    case "asked_again":
      return `retried: ${entry.reason}`;
  }
}
