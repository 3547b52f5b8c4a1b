-- Makes the changes of a decision if what it read is unchanged. Returns 'made' or 'changed', the moment, and the new version.
--
-- ARGV: 2 the moment and 3 the number of this decision, for settle.lua; 4 since when the store has lost nothing, as it was read;
-- 5 the highest version, if everything was read. Then lists, each after its length: parts that were read with their versions,
-- records that were read by id with their versions, parts that are written, changes, and messages with their channels. A change
-- is an id, the head that the record has before or nothing, the new record or nothing, keys that are added, and keys that are
-- removed. Nothing is written before everything is checked: a script that fails is not undone.
local at = 6
local function take()
    at = at + 1
    return ARGV[at - 1]
end
local function take_list()
    local list = {}
    for place = 1, tonumber(take()) do
        list[place] = take()
    end
    return list
end

-- A decision of this age is refused: its client may have given it up, and the note of that may have expired.
if moment - tonumber(ARGV[2]) > 30000000 or redis.call('ZSCORE', KEYS[7], 'x' .. ARGV[3]) then
    return { 'changed', moment }
end
if ARGV[5] ~= '' and ARGV[5] ~= about[5] or ARGV[4] ~= '' and ARGV[4] ~= about[6] then
    return { 'changed', moment }
end
local parts = take_list()
local known = take_list()
for place, version in ipairs(versions_of(parts)) do
    if version ~= known[place] then
        return { 'changed', moment }
    end
end
for _ = 1, tonumber(take()) do
    local record = redis.call('HGET', KEYS[2], take())
    local version = record and string.match(record, '^%d+') or '0'
    if version ~= take() then
        return { 'changed', moment }
    end
end

local version = text(number + 1)
local written = take_list()
local ids, before, after, added, removed = {}, {}, {}, {}, {}
local changes = tonumber(take())
for change = 1, changes do
    local id, head, body = take(), take(), take()
    local is = after[id]
    if is == nil then
        is = redis.call('HGET', KEYS[2], id)
        before[id] = is
        ids[#ids + 1] = id
    end
    local start = is and string.find(is, '\0', 1, true)
    local fits = head == '' and not is or head ~= '' and is and string.sub(is, start + 1, start + #head) == head
    if not fits then
        return redis.error_reply('MISFIT record ' .. id .. ' is not what it should be')
    end
    after[id] = body ~= '' and version .. '\0' .. body
    added[change], removed[change] = take_list(), take_list()
end

local log = {}
for _, id in ipairs(ids) do
    log[#log + 1] = version
    log[#log + 1] = version .. '\0' .. id .. '\0' .. (before[id] or '')
    if after[id] then
        redis.call('HSET', KEYS[2], id, after[id])
    else
        redis.call('HDEL', KEYS[2], id)
    end
end
call_with('ZADD', KEYS[6], log)
redis.call('ZADD', KEYS[7], version, ARGV[3])
local has_removed = false
for change = 1, changes do
    if #removed[change] > 0 then
        call_with('ZREM', KEYS[3], removed[change])
        has_removed = true
    end
    call_with('ZADD', KEYS[3], added[change])
end
local used, gone, hashes = {}, {}, {}
for _, part in ipairs(written) do
    -- Paths are one part, which stays.
    if has_removed and part ~= 'p'
        and #redis.call('ZRANGEBYLEX', KEYS[3], '[' .. part .. '\0', '(' .. part .. '\1', 'LIMIT', 0, 1) == 0 then
        gone[#gone + 1] = part
        hashes[#hashes + 1] = string.sub(redis.sha1hex(part), 1, 3)
        hashes[#hashes + 1] = version
    else
        used[#used + 1] = part
        used[#used + 1] = version
    end
end
call_with('HSET', KEYS[4], used)
call_with('HDEL', KEYS[4], gone)
call_with('HSET', KEYS[5], hashes)
redis.call('HSET', KEYS[1], 'number', version, 'version', version, 'wall', text(wall), 'ahead', text(moment - wall))
if math.floor(wall / 1000000) ~= math.floor(last_wall / 1000000) then
    redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', text(moment - 40000000))
    redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', text(moment - 90000000))
end
for _ = 1, tonumber(take()) do
    redis.call('PUBLISH', take(), take())
end
return { 'made', moment, version }
