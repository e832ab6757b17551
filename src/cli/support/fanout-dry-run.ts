import { NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import { visibleText } from "../../base/printable-text.ts";
import { costOf, moneyText } from "../../fanout/cost/price-table.ts";
import { jobKey, type TableInput } from "../../fanout/input/table-input.ts";
import { countText } from "../../fanout/output/job-progress.ts";
import { type DryRun, dryRun } from "../../fanout/run/dry-run.ts";
import { type SampledUsage, sampledUsage } from "../../fanout/run/usage-sample.ts";
import type { FanoutCommandOptions } from "../options/fanout-options.ts";
import { openJobStore } from "./fanout-setup.ts";

/** Shows what a run would ask and what it would cost, and asks nothing. */
export async function showDryRun(options: FanoutCommandOptions, input: TableInput): Promise<number> {
  const { task } = options;
  const plan = await dryRun(input, task, options.settings.rowLimit);
  await using store = await openJobStore(options, { waits: false });
  const estimate = estimateOf(plan, await sampledUsage(store, jobKey(input, task), task));
  const price = options.prices.priceOf(task.model);
  const costUsd = price && costOf(price, estimate.usage);
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
    process.stdout.write(process.stdout.isTTY ? visibleText(shown) : shown);
  }
  const cost = costUsd === null ? "" : `, ${moneyText(costUsd)}`;
  const sent = `about ${countText(estimate.usage.inputTokens)} input tokens with ${task.model}`;
  process.stdout.write(
    estimate.sampledRows === 0
      ? `${plan.rows} rows, one call each where one is enough: ${sent}${cost}, and what the model writes on top; a run with --sample 10 would tell how much that is. Nothing was asked.\n`
      : `${plan.rows} rows, by the ${estimate.sampledRows} that were asked so far: ${sent}, ${countText(estimate.usage.outputTokens)} output tokens${cost}. Nothing was asked.\n`,
  );
  return 0;
}

interface Estimate {
  usage: TokenUsage;
  /** How many rows it is drawn from; 0: only from what would be sent. */
  sampledRows: number;
}

function estimateOf(plan: DryRun, sample: SampledUsage | null): Estimate {
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
