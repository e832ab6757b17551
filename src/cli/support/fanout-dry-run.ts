import { NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import { printableText } from "../../base/text/printable-text.ts";
import { costInUsd, formatUsdExact } from "../../fanout/cost/price-table.ts";
import { jobKey, type TableInput } from "../../fanout/input/table-input.ts";
import { countText } from "../../fanout/output/job-progress.ts";
import { type DryRun, dryRun } from "../../fanout/run/dry-run.ts";
import { readUsageSample, type UsageSample } from "../../fanout/run/usage-sample.ts";
import type { FanoutCommandOptions } from "../options/agent/fanout-options.ts";
import { openJobStore } from "./fanout-setup.ts";

/** Prints the first prompts and the estimated tokens and cost of a run, without calling the model. */
export async function showDryRun(options: FanoutCommandOptions, input: TableInput): Promise<number> {
  const { task } = options;
  const plan = await dryRun(input, task, options.settings.rowLimit);
  await using store = await openJobStore(options, { waits: false });
  const estimate = estimateOf(plan, await readUsageSample(store, jobKey(input, task), task));
  const price = options.prices.priceOf(task.model);
  const costUsd = price && costInUsd(price, estimate.usage);
  if (options.json) {
    const fields = {
      type: "job.dry_run",
      rows: plan.rows,
      columns: plan.columns,
      estimated_input_tokens: estimate.usage.inputTokens,
      estimated_output_tokens: estimate.sampledRows === 0 ? null : estimate.usage.outputTokens,
      estimated_cost_usd: costUsd,
      sampled_rows: estimate.sampledRows,
      prompts: plan.prompts,
    };
    process.stdout.write(`${JSON.stringify(fields)}\n`);
    return 0;
  }
  for (const { itemId, text } of plan.prompts) {
    const shown = `--- ${itemId} ---\n${text}\n\n`;
    process.stdout.write(process.stdout.isTTY ? printableText(shown) : shown);
  }
  const cost = costUsd === null ? "" : `, ${formatUsdExact(costUsd)}`;
  const sent = `about ${countText(estimate.usage.inputTokens)} input tokens with ${task.model}`;
  process.stdout.write(
    estimate.sampledRows === 0
      ? `${plan.rows} rows, at least one call each: ${sent}${cost}, plus the output of the model; run with --sample 10 to estimate it. No call was made.\n`
      : `${plan.rows} rows, estimated from ${estimate.sampledRows} finished rows: ${sent}, ${countText(estimate.usage.outputTokens)} output tokens${cost}. No call was made.\n`,
  );
  return 0;
}

interface Estimate {
  usage: TokenUsage;
  /** Number of finished rows that the estimate is based on; 0: on the prompts alone. */
  sampledRows: number;
}

function estimateOf(plan: DryRun, sample: UsageSample | null): Estimate {
  if (!sample) return { usage: { ...NO_USAGE, inputTokens: plan.inputTokens }, sampledRows: 0 };
  const scaled = (tokens: number) => Math.round((tokens * plan.rows) / sample.rows);
  const { usage } = sample;
  return {
    usage: {
      inputTokens: scaled(usage.inputTokens),
      cachedInputTokens: scaled(usage.cachedInputTokens),
      outputTokens: scaled(usage.outputTokens),
      reasoningOutputTokens: scaled(usage.reasoningOutputTokens),
    },
    sampledRows: sample.rows,
  };
}
