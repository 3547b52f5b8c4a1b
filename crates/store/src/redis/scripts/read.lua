-- Reads versions and records of one moment, and draws numbers.
--
-- ARGV: 2 how many numbers, 3 the number of the snapshot or nothing, 4 what: 'moment', 'all', 'one' or 'in'. For one: the id. For
-- in: how many parts, the parts, the ends of a range of keys or nothing twice, and keys.
-- Returns the moment, since when the store has lost nothing, its version, the last number before those that were drawn, versions,
-- records, and for a snapshot the earlier contents of records that have changed, oldest first.
local drawn = tonumber(ARGV[2])
if drawn > 0 then
    redis.call('HSET', KEYS[1], 'number', text(number + drawn))
end

local log = {}
if ARGV[3] ~= '' then
    if moment - tonumber(ARGV[3]) > 30000000 then
        return redis.error_reply('OLD the snapshot is older than 30 s')
    end
    log = redis.call('ZRANGEBYSCORE', KEYS[6], '(' .. ARGV[3], '+inf')
end

local what = ARGV[4]
if what == 'moment' then
    return { moment, about[6], about[5], number, {}, {}, log }
elseif what == 'all' then
    return { moment, about[6], about[5], number, { about[5] }, redis.call('HVALS', KEYS[2]), log }
elseif what == 'one' then
    return { moment, about[6], about[5], number, {}, { redis.call('HGET', KEYS[2], ARGV[5]) or nil }, log }
end

local count = tonumber(ARGV[5])
local parts = {}
for place = 1, count do
    parts[place] = ARGV[5 + place]
end
local is_known, ids = {}, {}
local function add(members)
    for _, member in ipairs(members) do
        local id = string.match(member, '%z(%d+)$')
        if not is_known[id] then
            is_known[id] = true
            ids[#ids + 1] = id
        end
    end
end
local from, to = ARGV[6 + count], ARGV[7 + count]
if from ~= '' then
    add(redis.call('ZRANGEBYLEX', KEYS[3], '[' .. from, '(' .. to))
end
for place = 8 + count, #ARGV do
    add(redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[place] .. '\0', '(' .. ARGV[place] .. '\1'))
end
return { moment, about[6], about[5], number, versions_of(parts), call_with('HMGET', KEYS[2], ids), log }
