import type { JsonObject } from "../../agent/api/response-events.ts";
import type { BatchedTokens, TokenUsage } from "../../agent/token-usage.ts";
import { errorMessage } from "../../base/error-message.ts";
import { isNonNegativeNumber, isObject } from "../../base/type-guards.ts";
import { InputError } from "../job.ts";
import packaged from "./prices.json" with { type: "json" };

/** US dollars per million tokens. */
export interface Price {
  input: number;
  cachedInput: number;
  output: number;
}

/** The known prices of models. */
export class PriceTable {
  #prices: ReadonlyMap<string, Price>;

  constructor(prices: ReadonlyMap<string, Price>) {
    this.#prices = prices;
  }

  /** Returns the price of a model, or null if it is unknown. */
  priceOf(model: string): Price | null {
    for (const name of lookupNames(model)) {
      const price = this.#prices.get(name);
      if (price) return price;
    }
    return null;
  }

  /** Returns this table with the prices in `text`, which override existing ones. */
  with(text: string, name: string): PriceTable {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new InputError(`the prices ${name} are not JSON: ${errorMessage(error)}`, { cause: error });
    }
    const models = isObject(value) && isObject(value.models) ? value.models : value;
    if (!isObject(models)) throw badPrices(name, "not a JSON object");
    return new PriceTable(new Map([...this.#prices, ...decodePrices(models, name)]));
  }
}

/** Date of the packaged prices. */
export const PRICES_AS_OF: string = packaged.asOf;

export const PACKAGE_PRICES = new PriceTable(decodePrices(packaged.models, "of the package"));

/** Returns the cost in US dollars. */
export function costInUsd(price: Price, usage: TokenUsage): number {
  const saved = usage.batched ? costInMicroUsd(price, usage.batched) * (1 - BATCH_SHARE) : 0;
  return (costInMicroUsd(price, usage) - saved) / 1_000_000;
}

/** Price of a batched token as a fraction of the normal price. */
const BATCH_SHARE = 0.5;

function costInMicroUsd(price: Price, usage: BatchedTokens): number {
  const uncachedTokens = usage.inputTokens - usage.cachedInputTokens;
  return uncachedTokens * price.input + usage.cachedInputTokens * price.cachedInput + usage.outputTokens * price.output;
}

/** Formats dollars as `$1.23`. Amounts below $0.10 have enough digits to differ from zero. */
export function formatUsdExact(usd: number): string {
  if (usd === 0 || usd >= 0.1) return `$${usd.toFixed(2)}`;
  return `$${usd.toFixed(Math.min(8, 1 - Math.floor(Math.log10(usd))))}`;
}

/** Returns the model name, the name without a provider prefix, and the name without a release date. */
function lookupNames(model: string): string[] {
  const nameWithoutProvider = model.slice(model.lastIndexOf("/") + 1);
  return [model, nameWithoutProvider, nameWithoutProvider.replace(/-(\d{4}-?\d{2}-?\d{2}|latest)$/, "")];
}

function decodePrices(models: JsonObject, name: string): Map<string, Price> {
  const prices = new Map<string, Price>();
  for (const [model, entry] of Object.entries(models)) {
    if (!isObject(entry)) throw badPrices(name, `${model} has no prices`);
    const { input, output, cachedInput = input } = entry;
    if (!isNonNegativeNumber(input) || !isNonNegativeNumber(output) || !isNonNegativeNumber(cachedInput)) {
      throw badPrices(name, `those of ${model} are not numbers of at least 0`);
    }
    prices.set(model, { input, output, cachedInput });
  }
  return prices;
}

function badPrices(name: string, reason: string): InputError {
  const example = '{"MODEL": {"input": 1.25, "cachedInput": 0.125, "output": 10}}, in dollars for a million tokens';
  return new InputError(`the prices ${name} cannot be used: ${reason}; expected ${example}`);
}
