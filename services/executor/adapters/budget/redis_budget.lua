-- Counts the budgets of calls. One script, so that a call is counted in all of its buckets or in none.
--
-- KEYS   1: the call; 2..: its buckets.
-- ARGV   1: reserve or settle; 2: now in microseconds, empty for the server's own clock; 3: the call's id;
--        4..7: see below; 8: how many of a token's calls it takes; from 9 on six for each bucket: window, calls,
--        cost, concurrent, running, expiry (microseconds; empty means unset).
--
-- A bucket has up to four keys. ":w" holds every call of the window by its time, as "id|cost", and ":s" the sum of
-- those costs; ":c" holds the running calls by the end of their leases; ":t" holds the totals of a token's lifetime.
-- The call's own key records its reservation, so that a repeated reservation or settlement changes nothing.

local EXPIRY_MARGIN = 120 * 1000000
local MAX_TOKEN_LIFETIME = 366 * 86400 * 1000000
local MAX_STEPS = 10000
local FIELDS = 6

local verb, now, id, uses = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[8])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- Lua would write numbers of this size with an exponent, and round them.
local function whole(number) return string.format('%.0f', number) end

local function extend_expiry(key, micros)
  local millis = math.ceil(micros / 1000)
  if redis.call('PTTL', key) < millis then redis.call('PEXPIRE', key, whole(millis)) end
end

local function cost_in(member) return tonumber(string.match(member, '|(%d+)$')) end

local buckets = {}
for i = 2, #KEYS do
  local first = 9 + (i - 2) * FIELDS
  buckets[#buckets + 1] = {
    w = KEYS[i] .. ':w', s = KEYS[i] .. ':s', c = KEYS[i] .. ':c', t = KEYS[i] .. ':t',
    window = tonumber(ARGV[first]), calls = tonumber(ARGV[first + 1]), cost = tonumber(ARGV[first + 2]),
    concurrent = tonumber(ARGV[first + 3]), running = tonumber(ARGV[first + 4]), expiry = tonumber(ARGV[first + 5]),
  }
end

-- Removes the calls that left the window.
local function remove_expired(bucket)
  local over = whole(now - bucket.window)
  local gone = redis.call('ZRANGEBYSCORE', bucket.w, '-inf', over)
  if #gone == 0 then return end
  local cost = 0
  for _, member in ipairs(gone) do cost = cost + cost_in(member) end
  redis.call('ZREMRANGEBYSCORE', bucket.w, '-inf', over)
  if redis.call('EXISTS', bucket.w) == 0 then
    redis.call('DEL', bucket.s)
  elseif cost > 0 then
    redis.call('DECRBY', bucket.s, whole(cost))
  end
end

-- Returns the time until `surplus` calls, or so much cost, have left the window.
local function wait_for_calls(bucket, surplus)
  if bucket.calls == 0 then return bucket.window end
  local oldest = redis.call('ZRANGE', bucket.w, surplus - 1, surplus - 1, 'WITHSCORES')
  return tonumber(oldest[2]) + bucket.window - now
end

local function wait_for_cost(bucket, surplus)
  local seen, last = 0, now
  while surplus > 0 and seen < MAX_STEPS do
    local part = redis.call('ZRANGE', bucket.w, seen, seen + 99, 'WITHSCORES')
    if #part == 0 then return bucket.window end
    for i = 1, #part, 2 do
      seen, last = seen + 1, tonumber(part[i + 1])
      surplus = surplus - cost_in(part[i])
      if surplus <= 0 then break end
    end
  end
  return last + bucket.window - now
end

-- Returns the limit that refuses the call in a bucket, and for how long: -1 for always.
local function refusal(bucket, cost)
  if bucket.concurrent then
    redis.call('ZREMRANGEBYSCORE', bucket.c, '-inf', whole(now))
    if redis.call('ZCARD', bucket.c) >= bucket.concurrent then
      local first = redis.call('ZRANGE', bucket.c, 0, 0, 'WITHSCORES')
      local lease = first[2] and (tonumber(first[2]) - now) or 1000000
      return 'concurrent', math.min(lease, 1000000)
    end
  end
  if bucket.window then
    remove_expired(bucket)
    local kind, wait = nil, 0
    if bucket.calls then
      local surplus = redis.call('ZCARD', bucket.w) + 1 - bucket.calls
      if surplus > 0 then kind, wait = 'calls', wait_for_calls(bucket, surplus) end
    end
    if bucket.cost then
      local surplus = tonumber(redis.call('GET', bucket.s) or '0') + cost - bucket.cost
      if surplus > 0 then kind, wait = 'cost', math.max(wait, wait_for_cost(bucket, surplus)) end
    end
    return kind, wait
  end
  local spent = redis.call('HMGET', bucket.t, 'calls', 'cost', 'running')
  if bucket.calls and tonumber(spent[1] or '0') >= bucket.calls then return 'calls', -1 end
  if bucket.cost and tonumber(spent[2] or '0') + cost > bucket.cost then return 'cost', -1 end
  if bucket.running and tonumber(spent[3] or '0') >= bucket.running then return 'running', -1 end
  bucket.left = bucket.running and bucket.running - tonumber(spent[3] or '0')
  return nil
end

local function count_call(bucket, cost, granted, lease)
  if bucket.concurrent then
    redis.call('ZADD', bucket.c, whole(now + lease), id)
    extend_expiry(bucket.c, lease)
  end
  if bucket.window then
    if bucket.calls or cost > 0 then redis.call('ZADD', bucket.w, whole(now), id .. '|' .. whole(cost)) end
    if cost > 0 then redis.call('INCRBY', bucket.s, whole(cost)) end
    extend_expiry(bucket.w, bucket.window)
    extend_expiry(bucket.s, bucket.window)
  elseif bucket.calls or bucket.cost or bucket.running then
    redis.call('HINCRBY', bucket.t, 'calls', uses)
    if cost > 0 then redis.call('HINCRBY', bucket.t, 'cost', whole(cost)) end
    if bucket.running then redis.call('HINCRBY', bucket.t, 'running', whole(granted)) end
    local holds = (bucket.expiry or now + MAX_TOKEN_LIFETIME) - now
    extend_expiry(bucket.t, math.max(holds, lease) + EXPIRY_MARGIN)
  end
end

-- 4: cost; 5: requested running time; 6: lease. Returns {granted, running time}, {repeated, ..}, {over} or
-- {refused, bucket, limit, time}: the refusal that lasts longest.
local function reserve()
  local cost, granted, lease = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  local known = redis.call('GET', KEYS[1])
  if known == 'over' then return {'over'} end
  if known then return {'repeated', string.match(known, '|(%d+)|')} end
  local worst
  for i, bucket in ipairs(buckets) do
    local kind, wait = refusal(bucket, cost)
    if kind and (not worst or (worst[4] ~= -1 and (wait == -1 or wait > worst[4]))) then
      worst = {'refused', i, kind, wait}
    end
    if bucket.left then granted = math.min(granted, bucket.left) end
  end
  if worst then return {worst[1], whole(worst[2]), worst[3], whole(worst[4])} end
  for _, bucket in ipairs(buckets) do count_call(bucket, cost, granted, lease) end
  local note = whole(now) .. '|' .. whole(granted) .. '|' .. whole(cost)
  redis.call('SET', KEYS[1], note, 'PX', whole(math.ceil((lease + EXPIRY_MARGIN) / 1000)))
  return {'granted', whole(granted)}
end

local function correct_window(bucket, ran, began, before, cost)
  if ran and before == cost then return end
  if redis.call('ZREM', bucket.w, id .. '|' .. whole(before)) == 1 and before > 0 then
    redis.call('DECRBY', bucket.s, whole(before))
  end
  if ran and began > now - bucket.window and (bucket.calls or cost > 0) then
    redis.call('ZADD', bucket.w, whole(began), id .. '|' .. whole(cost))
    if cost > 0 then redis.call('INCRBY', bucket.s, whole(cost)) end
    extend_expiry(bucket.w, bucket.window)
    extend_expiry(bucket.s, bucket.window)
  end
end

-- 4: actual cost; 5: actual running time; 6: lease; 7: 1 if the call started.
local function settle()
  local cost, running, lease, ran = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
  local known = redis.call('GET', KEYS[1])
  -- Also for an unknown call: its reservation may still arrive, and must then find that the call is over.
  redis.call('SET', KEYS[1], 'over', 'PX', whole(math.ceil((lease + EXPIRY_MARGIN) / 1000)))
  if not known or known == 'over' then return {'unknown'} end
  local began, granted, before = string.match(known, '^(%d+)|(%d+)|(%d+)$')
  began, granted, before = tonumber(began), tonumber(granted), tonumber(before)
  for _, bucket in ipairs(buckets) do
    if bucket.concurrent then redis.call('ZREM', bucket.c, id) end
    if bucket.window then
      correct_window(bucket, ran, began, before, cost)
    elseif redis.call('EXISTS', bucket.t) == 1 then
      if not ran then redis.call('HINCRBY', bucket.t, 'calls', -uses) end
      if cost ~= before then redis.call('HINCRBY', bucket.t, 'cost', whole(cost - before)) end
      if bucket.running then redis.call('HINCRBY', bucket.t, 'running', whole(running - granted)) end
    end
  end
  return {'settled'}
end

if verb == 'reserve' then return reserve() end
return settle()
